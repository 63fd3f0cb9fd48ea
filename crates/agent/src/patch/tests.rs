//! Both forms: what is read, where it goes, and what is refused.

use super::*;

const TEXT: &str = "one\ntwo\nthree\nfour\nfive\n";

/// A patch of one file, applied.
fn patched(before: &str, patch: &str) -> Result<(String, Vec<Fit>), String> {
    let files = parse(patch)?;
    let Kind::Update { hunks, .. } = &files[0].kind else { return Err("no update".to_owned()) };
    apply(before, hunks).map_err(|miss| format!("{}: {}", miss.hunk, miss.why))
}

fn diff(hunks: &str) -> String {
    format!("--- a/f\n+++ b/f\n{hunks}")
}

fn envelope(hunks: &str) -> String {
    format!("*** Begin Patch\n*** Update File: f\n{hunks}*** End Patch\n")
}

#[test]
fn a_diff_goes_where_it_says() {
    let (after, fits) = patched(TEXT, &diff("@@ -2,2 +2,2 @@\n two\n-three\n+3\n")).unwrap();
    assert_eq!(after, "one\ntwo\n3\nfour\nfive\n");
    assert_eq!(fits, [Fit::Exact { line: 2 }]);
}

#[test]
fn a_diff_of_wrong_line_numbers_goes_to_the_only_place_and_says_so() {
    let (after, fits) = patched(TEXT, &diff("@@ -1,2 +1,2 @@\n four\n-five\n+5\n")).unwrap();
    assert_eq!(after, "one\ntwo\nthree\nfour\n5\n");
    assert_eq!(fits, [Fit::Moved { line: 4, said: 1 }]);
}

#[test]
fn of_two_places_the_line_number_decides_and_nothing_else() {
    let text = "a\nx\nb\nx\n";
    let (after, _) = patched(text, &diff("@@ -4,1 +4,1 @@\n-x\n+y\n")).unwrap();
    assert_eq!(after, "a\nx\nb\ny\n");
    let why = patched(text, &diff("@@ -3,1 +3,1 @@\n-x\n+y\n")).unwrap_err();
    assert!(why.contains("2 times (lines 2, 4)"), "{why}");
}

#[test]
fn white_space_may_differ_at_the_only_place_and_kept_lines_stay_as_they_are() {
    let (after, fits) =
        patched("if x:\n\ta\n\tb\n", &envelope("@@\n if x:\n-    a\n+\tc\n     b\n")).unwrap();
    assert_eq!(after, "if x:\n\tc\n\tb\n");
    assert_eq!(fits, [Fit::Loose { line: 1 }]);
}

#[test]
fn lines_that_are_not_there_are_never_guessed() {
    for patch in [diff("@@ -2,1 +2,1 @@\n-twoo\n+2\n"), envelope("@@\n-twoo\n+2\n")] {
        assert!(patched(TEXT, &patch).unwrap_err().contains("not in the file"));
    }
}

#[test]
fn several_hunks_go_one_behind_the_other() {
    let (after, _) = patched(TEXT, &diff("@@ -1,1 +1,2 @@\n one\n+half\n@@ -5,1 +6,0 @@\n-five\n")).unwrap();
    assert_eq!(after, "one\nhalf\ntwo\nthree\nfour\n");
    // The other way round they would lie over each other.
    assert!(patched(TEXT, &envelope("@@\n-five\n+5\n@@\n-one\n+1\n")).is_err());
}

#[test]
fn lines_without_neighbours_go_behind_the_line_that_is_named() {
    let (after, _) = patched(TEXT, &diff("@@ -2,0 +3,1 @@\n+new\n")).unwrap();
    assert_eq!(after, "one\ntwo\nnew\nthree\nfour\nfive\n");
    let (after, _) = patched(TEXT, &envelope("@@ two\n+new\n")).unwrap();
    assert_eq!(after, "one\ntwo\nnew\nthree\nfour\nfive\n");
    assert!(patched(TEXT, &envelope("@@\n+new\n")).is_err());
}

#[test]
fn an_anchor_chooses_between_equal_places() {
    let text = "def a():\n    return 1\n\ndef b():\n    return 1\n";
    let hunk = "-    return 1\n+    return 2\n";
    assert!(patched(text, &envelope(&format!("@@\n{hunk}"))).unwrap_err().contains("2 times"));
    let (after, _) = patched(text, &envelope(&format!("@@ def b():\n{hunk}"))).unwrap();
    assert_eq!(after, "def a():\n    return 1\n\ndef b():\n    return 2\n");
}

#[test]
fn the_end_of_a_file_is_kept_as_it_is_or_as_is_said() {
    let (after, _) =
        patched("a\nb", &diff("@@ -2,1 +2,1 @@\n-b\n\\ No newline at end of file\n+c\n")).unwrap();
    assert_eq!(after, "a\nc\n");
    let (after, _) =
        patched("a\nb\n", &diff("@@ -2,1 +2,1 @@\n-b\n+c\n\\ No newline at end of file\n")).unwrap();
    assert_eq!(after, "a\nc");
    let (after, _) = patched("a\nb", &diff("@@ -2,1 +2,2 @@\n b\n+c\n")).unwrap();
    assert_eq!(after, "a\nb\nc\n");
    let (after, _) = patched("x\na\nx\n", &envelope("@@\n-x\n+y\n*** End of File\n")).unwrap();
    assert_eq!(after, "x\na\ny\n");
}

#[test]
fn lines_that_end_with_a_return_go_on_doing_so() {
    let (after, _) = patched("a\r\nb\r\n", &envelope("@@\n a\n-b\n+c\n+d\n")).unwrap();
    assert_eq!(after, "a\r\nc\r\nd\r\n");
}

#[test]
fn a_diff_of_git_creates_deletes_renames_and_changes_modes() {
    let text = "diff --git a/new b/new\nnew file mode 100755\nindex 000..111\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+x\n\
                diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n\
                diff --git a/p b/q\nsimilarity index 100%\nrename from p\nrename to q\n\
                diff --git a/m b/m\nold mode 100644\nnew mode 100755\n\
                diff --git a/empty b/empty\nnew file mode 100644\n";
    let files = parse(text).unwrap();
    let update = |hunks, to, executable| Kind::Update { hunks, to, executable };
    let kinds: Vec<(&str, &Kind)> = files.iter().map(|f| (f.path.as_str(), &f.kind)).collect();
    assert_eq!(kinds[0], ("new", &Kind::Create { text: "x\n".to_owned(), executable: true }));
    assert!(matches!(kinds[1], ("old", Kind::Delete { hunks }) if hunks.len() == 1));
    assert_eq!(kinds[2], ("p", &update(Vec::new(), Some("q".to_owned()), None)));
    assert_eq!(kinds[3], ("m", &update(Vec::new(), None, Some(true))));
    assert_eq!(kinds[4], ("empty", &Kind::Create { text: String::new(), executable: false }));
}

#[test]
fn names_of_a_diff_may_be_quoted_and_may_have_dates() {
    let text = "--- \"a/\\377\"\n+++ \"b/\\377\"\n@@ -1,1 +1,1 @@\n-a\n+b\n--- x y\t2020-01-01\n+++ x y\t2020-01-02\n@@ -1 +1 @@\n-a\n+b\n";
    let names: Vec<String> = parse(text).unwrap().into_iter().map(|f| f.path).collect();
    assert_eq!(names, ["\"\\377\"", "x y"]);
}

#[test]
fn an_envelope_adds_deletes_and_moves() {
    let text = "*** Begin Patch\n*** Add File: a\n+1\n+\n*** Delete File: b\n*** Update File: c\n*** Move to: d\n@@\n-x\n+y\n\n*** End Patch";
    let files = parse(text).unwrap();
    assert_eq!(files[0].kind, Kind::Create { text: "1\n\n".to_owned(), executable: false });
    assert_eq!(files[1].kind, Kind::Delete { hunks: Vec::new() });
    assert!(
        matches!(&files[2].kind, Kind::Update { to: Some(to), hunks, .. } if to == "d" && hunks[0].lines.len() == 2)
    );
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    for (text, says) in [
        ("", "changes no file"),
        ("hello", "line 1"),
        ("--- a/f\n", "`+++ `"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n", "correct the counts"),
        ("--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-a\n+b\n+c\n", "more lines than its hunk"),
        ("--- a/f\n+++ b/f\n@@ bad @@\n", "line 3"),
        ("--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n a\n", "neither adds nor removes"),
        ("--- a/f\n+++ b/f\n", "nothing is changed"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "both names"),
        ("diff --git a/f b/f\nGIT binary patch\n", "binary"),
        (
            "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n",
            "mode 120000",
        ),
        ("*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n", "does not end"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("*** Begin Patch\n*** Update File: f\nfoo\n*** End Patch", "line 3"),
        ("*** Begin Patch\n*** Update File: f\n@@\n a\n*** End Patch", "neither adds"),
        ("*** Begin Patch\n*** Update File: \n@@\n-a\n*** End Patch", "no name"),
        ("*** Begin Patch\n*** Update File: f\n*** End Patch", "nothing is changed"),
        ("*** Begin Patch\n*** Add File: f\nx\n*** End Patch", "begins with `+`"),
        ("*** Begin Patch\nnoise\n*** End Patch", "line 2"),
        ("*** Begin Patch", "does not end"),
    ] {
        let why = parse(text).unwrap_err();
        assert!(why.contains(says), "{text:?}: {why}");
    }
}

/// R33: whatever a text is, it is read or refused, in bounded time.
#[test]
fn r33_no_text_makes_the_reader_panic_or_wait() {
    let pieces = [
        "--- a/f\n",
        "+++ b/f\n",
        "@@ -1,1 +1,1 @@\n",
        "@@ -0,0 +1,99999 @@\n",
        "-a\n",
        "+b\n",
        " c\n",
        "\n",
        "\\ No newline\n",
        "*** Begin Patch\n",
        "*** End Patch\n",
        "*** Update File: f\n",
        "*** Add File: g\n",
        "*** Move to: h\n",
        "@@\n",
        "@@ a\n",
        "*** End of File\n",
        "diff --git a/f b/f\n",
        "rename from f\n",
        "rename to \"\\377\"\n",
        "é",
        "\"",
        "\r\n",
        "+++ ",
    ];
    let mut state = 0x2545_f491_u32;
    let mut next = |n: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(state >> 8).unwrap() % n
    };
    for _ in 0..20_000 {
        let text: String = (0..next(14)).map(|_| pieces[next(pieces.len())]).collect();
        for file in parse(&text).unwrap_or_default() {
            if let Kind::Update { hunks, .. } | Kind::Delete { hunks } = &file.kind {
                apply("a\nc\n\nb", hunks).ok();
                apply("", hunks).ok();
            }
        }
    }
    let many = format!("{}{}", diff(""), "@@ -1,1 +1,1 @@\n-a\n+b\n".repeat(MAX_HUNKS + 1));
    assert!(parse(&many).unwrap_err().contains("more than"));
    // Equal lines everywhere, and one at the end that differs: quadratic for who is patient.
    let hunk = format!("@@ -1,20001 +1,20000 @@\n{}-z\n", " a\n".repeat(20_000));
    assert!(patched(&"a\n".repeat(100_000), &diff(&hunk)).unwrap_err().contains("too large"));
}

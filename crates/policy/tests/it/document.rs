//! Files that are hardly files: they end in a fault with a place, quickly, and never in a panic.

use policy::{Code, Deployment, Guild};

use crate::{tells, told};

fn deployment(text: &str) -> policy::Faults {
    Deployment::parse("f", text).expect_err("a fault")
}

#[test]
fn a_syntax_error_has_its_place() {
    assert_eq!(told(&deployment("[model]\nname = \n")), ["syntax @2:8"]);
}

#[test]
fn a_duplicate_key_is_a_fault_at_the_second() {
    assert_eq!(told(&deployment("[model]\nname = \"a\"\nname = \"b\"\n")), ["syntax @3:1"]);
    assert_eq!(told(&deployment("[model]\n[call]\n[model]\n")), ["syntax @3:2"]);
}

#[test]
fn columns_count_characters() {
    let wrong = deployment("shell = { allow = [\"\u{e4}\u{f6}\u{fc}\"], x = 1 }");
    assert_eq!(told(&wrong), ["bad-value shell.allow[0]@1:20", "unknown-key shell.x@1:28"]);
}

#[test]
fn size_nesting_and_number_of_values_are_bounded() {
    let too_big = "#".repeat((1 << 20) + 1);
    let many_parts = format!("{} = 1", vec!["a"; 100_000].join("."));
    let quoted_parts = format!("{} = 1", vec!["\"=\""; 100_000].join("."));
    let brackets = format!("x = {}", "[".repeat(100_000));
    let deep = format!("x = {}1{}", "[".repeat(40), "]".repeat(40));
    let many = format!("shell.allow = [{}]", "\"ls\",".repeat(100_000));
    let unknown: String = (0..50_000).map(|i| format!("k{i}=1\n")).collect();
    for text in [&too_big, &many_parts, &quoted_parts, &brackets, &deep, &many, &unknown] {
        for wrong in [deployment(text), Guild::parse("f", text).expect_err("a fault")] {
            assert!(wrong.iter().count() <= 200);
        }
    }
}

/// What stands behind the bound was not looked at: that it is missing is not said.
#[test]
fn of_a_file_with_too_many_values_only_that_is_told() {
    let many = format!(
        "name = 1979-05-27\nx = [{}]\nentry = \"a\"\n[roles.a]\nprompt = \"p.md\"\n",
        "1,".repeat(60_000)
    );
    let wrong = Guild::parse("f", &many).expect_err("a fault");
    let told: Vec<String> = wrong.iter().map(|fault| format!("{}: {}", fault.key, fault.message)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("x[") && told[0].contains("too many"), "{told:?}");
}

/// The names of 900 roles are not compared without end with 900 others that none of them is.
#[test]
fn looking_for_what_was_meant_ends() {
    let roles: String = (0..900)
        .map(|n| {
            format!(
                "[roles.r{n}{}]\nprompt = \"p.md\"\nagents = [\"{}{n}\"]\n",
                "a".repeat(50),
                "a".repeat(50)
            )
        })
        .collect();
    let text = format!("schema = 1\nname = \"x\"\nentry = \"r0\"\n{roles}");
    let began = std::time::Instant::now();
    let wrong = Guild::parse("f", &text).expect_err("a fault");
    assert_eq!(wrong.iter().count(), 200);
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn dots_in_strings_and_comments_are_no_long_key() {
    let text = "# a.b.c.d.e.f.g.h.i.j.k\nmodel.name = \"a.b.c.d.e.f.g.h.i.j.k\"\n";
    assert!(Deployment::parse("f", text).is_ok());
    let text = "model.name = '''a\nb.c.d.e.f.g.h.i.j.k'''\n";
    assert!(tells(&deployment(text), Code::BadValue, "model.name"));
}

#[test]
fn a_value_of_a_foreign_kind_is_told_with_its_kind() {
    let wrong = deployment("[model]\nname = 1979-05-27\nbase_url = [1]\n[limits]\nmemory = true\n");
    assert_eq!(
        told(&wrong),
        ["wrong-type model.name@2:8", "wrong-type model.base_url@3:12", "wrong-type limits.memory@5:10"]
    );
}

#[test]
fn messages_hold_no_control_character_of_the_file() {
    let wrong = deployment("\"a\\u001b[2Jb\" = 1\nshell.allow = [\"\\u001b[31m\"]\n");
    assert!(!wrong.to_string().contains('\u{1b}'));
}

//! R31: the operator's lists of commands. They are no boundary; the sandbox is.

use policy::{Decision, Deployment, Grant, Shell, Tool};

fn decide(allow: &[&str], deny: &[&str], tool: Tool, argv: &[&str]) -> Decision {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let shell = Shell { enabled: true, allow: list(allow), deny: list(deny) };
    let grant = Grant::without_guild(&Deployment { shell, ..Deployment::default() });
    grant.program(tool, &argv.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
}

fn text_allowed(allow: &[&str], text: &str) -> bool {
    decide(allow, &[], Tool::RunShell, &["sh", "-c", text]).is_allowed()
}

fn text_denied(deny: &[&str], text: &str) -> bool {
    !decide(&[], deny, Tool::RunShell, &["sh", "-c", text]).is_allowed()
}

/// Ways around command lists that were found in other agents.
#[test]
fn r31_known_bypasses_of_command_lists_are_refused() {
    #[derive(serde::Deserialize)]
    struct Case {
        id: String,
        allow: Vec<String>,
        deny: Vec<String>,
        text: String,
        expect: String,
    }
    let mut seen = 0;
    for line in include_str!("cases/shell.jsonl").lines() {
        let case: Case = serde_json::from_str(line).expect(line);
        let words = |list: &'_ [String]| list.to_vec();
        let shell = Shell { enabled: true, allow: words(&case.allow), deny: words(&case.deny) };
        let grant = Grant::without_guild(&Deployment { shell, ..Deployment::default() });
        let decision = grant.program(Tool::RunShell, &["sh".into(), "-c".into(), case.text.clone()]);
        assert_eq!(
            decision.is_allowed(),
            case.expect == "allowed",
            "{}: {} ({})",
            case.id,
            case.text,
            decision.reason
        );
        seen += 1;
    }
    assert_eq!(seen, 27);
}

#[test]
fn without_lists_every_text_may_run() {
    assert!(text_allowed(&[], "x=$(rm -rf /) > y & exec $z <<'E'\nE"));
}

#[test]
fn an_allow_list_passes_what_is_wholly_understood() {
    for text in [
        "ls",
        "ls -la *.rs ~",
        "ls\necho 'a;b' \"c|d\"\n",
        "echo a && ls || echo b; ls | echo",
        "\"l\"s",
        "ls # touch x",
        "ls 2>&1",
        "ls 2>/dev/null >/dev/null",
        "echo a\\\nb",
        "git status -s",
        "",
        "  \n",
    ] {
        assert!(text_allowed(&["ls", "echo", "git status"], text), "{text}");
    }
}

#[test]
fn an_allow_list_refuses_whatever_it_cannot_tell() {
    for text in [
        "ls $x",
        "ls ${x}",
        "ls \"$(id)\"",
        "ls `id`",
        "ls > f",
        "ls >f",
        "ls >| f",
        "ls < f",
        "ls >&f",
        "ls &> f",
        "ls <<< x",
        "ls << E\nE",
        "(ls)",
        "{ ls; }",
        "ls &",
        "ls & ls",
        "ls |& touch x",
        "A=1 ls",
        "A=1",
        "ls() { id; }",
        "if ls; then ls; fi",
        "! ls",
        "/bin/ls",
        "./ls",
        "l?",
        "'ls",
        "ls \"x",
        "ls \\",
        "ls\r\nid",
        "eval ls",
        "exec ls",
        "env ls",
        "git push",
        "git -c core.pager=id status",
        "git",
        "ls\u{b}id",
        "ls >",
        "export A=1",
        "cd /",
    ] {
        assert!(!text_allowed(&["ls", "echo", "git status"], text), "{text}");
    }
}

#[test]
fn r31_a_listed_wrapper_starts_only_what_is_listed() {
    let allow = ["env", "timeout", "xargs", "find", "sh", "eval", "ls"];
    for text in [
        "env ls",
        "timeout 5 ls",
        "ls | xargs ls",
        "find . -name x -exec ls {} +",
        "sh -c 'env ls'",
        "eval ls",
        "env",
    ] {
        assert!(text_allowed(&allow, text), "{text}");
    }
    for text in [
        "env touch x",
        "env -u A ls",
        "env A=1 ls",
        "timeout 5 touch x",
        "ls | xargs touch",
        "xargs -n1 touch",
        "find . -exec touch {} +",
        "sh -c 'touch x'",
        "sh -ec ls",
        "eval touch x",
        "env sh -c 'env touch x'",
        "find . -exec ls {} + -exec touch x ';'",
        "find *",
        "sh [a-c]",
        "find {.,-exec,touch}",
        "eval ?",
        "find . -exec env + touch x ';' -exec touch x ';'",
    ] {
        assert!(!text_allowed(&allow, text), "{text}");
    }
}

#[test]
fn a_deny_list_looks_through_wrappers_and_nesting() {
    for text in [
        "rm x",
        "/bin/rm x",
        "'r'm x",
        "true; rm x",
        "true && rm x",
        "true | rm",
        "true & rm x",
        "(rm x)",
        "{ rm x; }",
        "if rm x; then :; fi",
        "for f in *; do rm $f; done",
        "case a in a) rm x;; esac",
        "! rm x",
        "A=1 B=2 rm x",
        "echo $(rm x)",
        "echo \"$(rm x)\"",
        "echo `rm x`",
        "echo ${a:-$(rm x)}",
        "cat <(rm x)",
        "$(echo $(rm x))",
        "env A=1 rm x",
        "env -u A rm x",
        "env -S 'rm x'",
        "nice -n 5 rm x",
        "timeout -k 5 -s KILL 10s rm x",
        "sudo -u root rm x",
        "command rm x",
        "exec rm x",
        "nohup env nice rm x",
        "xargs -I{} rm {}",
        "busybox rm x",
        "sh -c 'rm x'",
        "bash -lc \"rm x\"",
        "su -c 'rm x'",
        "eval rm x",
        "find . -ok rm {} ';'",
        "chroot /m rm x",
        ">f rm x",
        "2>&1 rm x",
        "git push",
        "git -C . push",
        "git --git-dir=x push",
        "cat <<E\nE\nrm x",
    ] {
        assert!(text_denied(&["rm", "git push"], text), "{text}");
    }
}

#[test]
fn a_deny_list_leaves_arguments_alone() {
    for text in [
        "echo rm",
        "grep 'rm x' f",
        "git log push",
        "git stash push",
        "cat <<'E'\nrm x\nE\n",
        "ls # rm x",
        "rmdir x",
        "echo 'a; rm x'",
        "echo a > rm",
        "cat <<-E\n\trm x\n\tE\nls",
        "git commit -m 'push'",
        "find . -name rm",
    ] {
        assert!(!text_denied(&["rm", "git push"], text), "{text}");
    }
}

#[test]
fn run_command_is_judged_by_its_words() {
    let run = |allow: &[&str], deny: &[&str], argv: &[&str]| {
        decide(allow, deny, Tool::RunCommand, argv).is_allowed()
    };
    assert!(!run(&[], &["rm"], &["/usr/bin/rm", "x"]));
    assert!(!run(&[], &["rm"], &["sh", "-c", "rm x"]));
    assert!(!run(&[], &["git push"], &["git", "-C", ".", "push"]));
    assert!(run(&[], &["rm"], &["echo", "rm", "; rm x"]));
    assert!(run(&["ls"], &[], &["ls", "$(id) > x"]));
    assert!(!run(&["ls"], &[], &["./ls"]));
    assert!(!run(&["ls"], &[], &["touch", "ls"]));
    assert!(!run(&[], &[], &[]));
    assert!(!run(&[], &[], &["ls", "a\0b"]));
}

#[test]
fn a_refusal_names_the_rule_of_the_operator() {
    let denied = decide(&[], &["git push"], Tool::RunShell, &["sh", "-c", "git push \u{1b}[2J"]);
    assert_eq!(
        (denied.rule, denied.reason.as_str()),
        ("shell-deny", "`git push` is refused in this deployment")
    );
    let unlisted = decide(&["ls", "cat"], &[], Tool::RunCommand, &["touch"]);
    assert_eq!(unlisted.rule, "shell-allow");
    assert!(unlisted.reason.ends_with("ls, cat"));
}

/// R2: whatever the text, judging it ends soon.
#[test]
fn r2_no_nesting_makes_a_judgement_slow() {
    let mut quoted = "rm x".to_owned();
    for _ in 0..12 {
        quoted = format!("sh -c '{}'", quoted.replace('\'', "'\\''"));
    }
    let texts = [
        "$(".repeat(100_000),
        "`".repeat(100_001),
        "env -a ".repeat(100_000),
        "sh -c ".repeat(100_000),
        "eval ".repeat(100_000),
        "env -x sh -c ".repeat(50_000),
        "find . -exec ".repeat(50_000),
        "cat <<E\n".repeat(50_000),
        "\"".repeat(100_001),
        "((((".repeat(50_000),
    ];
    for text in &texts {
        text_denied(&["rm"], text);
        text_allowed(&["env", "sh", "eval", "find", "cat"], text);
    }
    assert!(text_denied(&["rm"], &quoted));
}

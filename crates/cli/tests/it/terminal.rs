//! R4, R33: nothing that anybody else has written drives the terminal of who reads it, whatever command shows it; and
//! what hides or turns text around is marked.

use crate::place::{Place, Ran, finish, sh};
use testkit::Script;

/// Escape, control sequence introducer of eight bits, bell, return, text turned around, and one that nobody sees.
const ODD: &str = "x\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{7f}\u{202e}y\u{200b}z";

#[track_caller]
fn assert_clean(ran: &Ran) {
    let odd = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || ('\u{200b}'..='\u{200f}').contains(&c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
    };
    for text in [&ran.out, &ran.err] {
        assert!(!text.chars().any(odd), "{text:?}");
    }
}

#[test]
fn r33_the_output_of_a_command_is_clean_for_a_terminal_and_for_a_pipe() {
    let place = Place::quick();
    let ran = place.exec(&["printf", "%s", ODD]);
    assert_clean(&ran);
    assert!(ran.out.contains("<U+202E>y<U+200B>z"), "{ran:?}");
    let both = place.exec(&["sh", "-c", "printf '\\377\\033[2J\\n' >&2"]);
    assert_clean(&both);
    assert_eq!(both.err, "\u{fffd}\n");
    // The same with a terminal behind it.
    let exec = place.exec_command(&["--tty"], &["printf", "%s", ODD]);
    let words: Vec<String> = std::iter::once(exec.get_program())
        .chain(exec.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut script = place.command("script".as_ref());
    let ran = crate::place::ran(script.args(["-qec", &words.join(" "), "/dev/null"]));
    assert!(!ran.out.contains('\u{1b}') && !ran.out.contains('\u{202e}'), "{ran:?}");
    assert!(ran.out.contains("<U+202E>y"), "{ran:?}");
    assert_clean(&place.exec_with(&["--json"], &["printf", "%s", ODD]));
}

/// R4: what a model says, and what its calls leave, in every command that tells of a run.
#[test]
fn r4_what_a_model_and_its_files_are_called_is_clean_wherever_it_is_told() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    place.write("source/old", "x\n");
    let model = Script::new([
        sh(&format!("printf x > '{ODD}'; printf '%s' '{ODD}'; ln -s '/{ODD}' link; mkfifo 'p{ODD}'")),
        sh(ODD),
        finish(),
    ])
    .start();
    let args: Vec<&str> = place.run_args("URL").into_iter().filter(|word| *word != "--json").collect();
    let url = model.base_url();
    let args: Vec<&str> =
        args.into_iter().map(|word| if word == "URL" { url.as_str() } else { word }).collect();
    let ran = place.ran(args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_clean(&ran);
    let id = place.ids().pop().unwrap();
    for words in [
        &["runs", "list"][..],
        &["runs", "list", "--json"],
        &["runs", "show", &id],
        &["runs", "show", &id, "--json"],
        &["runs", "verify", &id],
        &["runs", "apply", &id],
        &["runs", "apply", &id, "--dry-run"],
        &["runs", "apply", &id, "--dry-run", "--json"],
        &["runs", "gc", "--dry-run"],
    ] {
        assert_clean(&place.ran(words));
    }
}

#[test]
fn r34_errors_that_quote_names_quote_them_clean() {
    let place = Place::quick();
    place.write(&format!("source/{}/x", ODD.replace('/', "")), "x\n");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path(format!("source/{ODD}/pipe")),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let refused = place.exec_with(&["--workspace", "source"], &["true"]);
    refused.assert_refused(2, "a FIFO");
    assert_clean(&refused);
    for words in [
        &["runs", "show", ODD][..],
        &["guild", "check", ODD],
        &["guild", "check", ODD, "--json"],
        &["exec", "--config", ODD, "--", "true"],
        &["exec", "--workspace", ODD, "--", "true"],
        &["exec", "--tier", ODD, "--", "true"],
        &[ODD],
        &["prove", "--only", ODD, "--tier", "namespace"],
        &["prove", "--attacks", ODD],
        &["schema", ODD],
    ] {
        let ran = place.ran(words);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert_clean(&ran);
    }
    place.write(&format!("{ODD}/guild.toml"), format!("schema = 1\nname = \"{}\"\n[\u{202e}]\n", "x"));
    assert_clean(&place.ran(["guild", "check", ODD]));
}

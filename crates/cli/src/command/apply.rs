//! `oubliette runs apply`: shows a change, warns, asks, and takes it over.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use runs::{Delivery, FileChange, Preview, Shape, Target};
use serde_json::json;

use crate::args::Apply;
use crate::exit::{Ended, Exit, usage};
use crate::{render, signal};

/// Lines of the patch that are shown without `--full`, and signs of a line.
const LINES: usize = 400;
const SIGNS: usize = 400;
/// Files and warnings that are named without `--full`.
const FILES: usize = 200;
/// What is typed where a warning wants a word of its own.
const WORD: &str = "accept";

pub(crate) fn apply(args: &Apply) -> anyhow::Result<ExitCode> {
    let delivery = Delivery::open(&super::runs::folder(&args.store)?, &args.id)?;
    for said in delivery.recovered() {
        render::note(&format!("oubliette: {}", render::shown(said)));
    }
    let target = delivery.target(args.to.as_deref())?;
    let preview = delivery.preview(&target, args.accept_drift)?;
    if !args.store.json {
        show(&preview, args.full);
    }
    // What is in the files already may still want a branch.
    let done = preview.already && args.to_branch.is_none();
    if preview.files.is_empty() || done || args.dry_run {
        return told(args, &preview, &json!(null), end(&preview));
    }
    agreed(args, &preview)?;
    if let Some(name) = &args.to_branch {
        let made = delivery.branch(&target, name)?;
        for note in &made.notes {
            render::note(&format!("oubliette: {}", render::shown(note)));
        }
        let said = format!("branch {}: commit {} on {}", made.branch, made.commit, made.base);
        return told(args, &preview, &json!(made), &said);
    }
    take(args, &delivery, &target, &preview)
}

fn end(preview: &Preview) -> &'static str {
    match (preview.files.is_empty(), preview.already) {
        (true, _) => "nothing was changed, so there is nothing to take over",
        (false, true) => "it is there already; nothing was done",
        (false, false) => "nothing was done (`--dry-run`)",
    }
}

fn take(args: &Apply, delivery: &Delivery, target: &Target, preview: &Preview) -> anyhow::Result<ExitCode> {
    let cancel = signal::cancel()?;
    let applied = delivery.apply(target, &|_, _| !cancel.is_cancelled())?;
    for note in &applied.notes {
        render::note(&format!("oubliette: left over: {}", render::shown(note)));
    }
    let said = format!("taken over: {} files", preview.files.len());
    told(args, preview, &json!(applied), if applied.already { end(preview) } else { &said })
}

fn told(
    args: &Apply,
    preview: &Preview,
    applied: &serde_json::Value,
    said: &str,
) -> anyhow::Result<ExitCode> {
    if args.store.json {
        render::json(&json!({ "preview": preview, "applied": applied }))?;
    } else {
        render::line(said);
    }
    Ok(Exit::Done.into())
}

/// The user's own word, from a terminal or from the command line; anything else is no.
fn agreed(args: &Apply, preview: &Preview) -> anyhow::Result<()> {
    let refused = |message: String| Err(Ended { exit: Exit::Refused, message }.into());
    let grave = preview.is_grave() && !args.accept_warnings;
    if args.yes {
        return if grave {
            let all: Vec<String> = preview
                .warnings
                .iter()
                .filter(|warning| warning.grave)
                .take(20)
                .map(|warning| format!("  [{}] {}: {}", warning.code, warning.path, warning.reason))
                .collect();
            refused(format!(
                "nothing was done: the change holds what wants a word of its own; look at it, and say \
                 `--accept-warnings`\n{}",
                all.join("\n")
            ))
        } else {
            Ok(())
        };
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() || args.store.json {
        return Err(usage(
            "nothing was done: there is nobody to ask; `--yes` takes the change over, `--dry-run` only shows it",
        ));
    }
    let word = if grave { WORD } else { "yes" };
    let to = match &args.to_branch {
        Some(_) => "a new branch of ",
        None => "",
    };
    let target = render::shown(&preview.target.to_string_lossy());
    write!(io::stderr(), "take it over to {to}{target}? type `{word}`: ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let answer = answer.trim().to_lowercase();
    if answer == word || (!grave && answer == "y") {
        return Ok(());
    }
    Err(Ended { exit: Exit::Failed, message: "nothing was done".to_owned() }.into())
}

/// Files, warnings, and the patch; everything that is odd in them is marked.
pub(crate) fn show(preview: &Preview, full: bool) {
    let most = |few: usize| if full { usize::MAX } else { few };
    render::line(&format!("run      {}", preview.run_id));
    render::line(&format!("target   {}", render::shown(&preview.target.to_string_lossy())));
    let count = |change: &str| preview.files.iter().filter(|file| file.change == change).count();
    render::line(&format!(
        "changes  {} added, {} changed, {} deleted",
        count("added"),
        count("changed"),
        count("deleted")
    ));
    for file in preview.files.iter().take(most(FILES)) {
        render::line(&format!("  {}", named(file)));
    }
    more(preview.files.len(), most(FILES), "files");
    for refused in preview.refused.iter().take(most(FILES)) {
        render::line(&format!("  ! not taken: {}", marked(refused, most(SIGNS))));
    }
    more(preview.refused.len(), most(FILES), "that are not taken");
    if !preview.patch.is_empty() {
        render::line("");
        let lines: Vec<&[u8]> = preview.patch.split_inclusive(|b| *b == b'\n').collect();
        for line in lines.iter().take(most(LINES)) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            render::line(&cut(&runs::marked(line), most(SIGNS)));
        }
        if lines.len() > most(LINES) {
            render::line(&format!("... {} more lines: `--full` shows them", lines.len() - LINES));
        }
        render::line("");
    }
    // Last, where they are seen.
    for warning in preview.warnings.iter().filter(|w| !w.grave).take(most(FILES)) {
        render::line(&format!("note     [{}] {}: {}", warning.code, warning.path, warning.reason));
    }
    more(preview.warnings.iter().filter(|w| !w.grave).count(), most(FILES), "notes");
    for warning in preview.warnings.iter().filter(|w| w.grave).take(most(FILES)) {
        render::line(&format!("warning  [{}] {}: {}", warning.code, warning.path, warning.reason));
    }
    more(preview.warnings.iter().filter(|w| w.grave).count(), most(FILES), "warnings");
}

fn more(all: usize, shown: usize, what: &str) {
    if all > shown {
        render::line(&format!("  ... {} more {what}: `--full` shows them", all - shown));
    }
}

fn named(file: &FileChange) -> String {
    let mark = match file.change {
        "added" => '+',
        "deleted" => '-',
        _ => '~',
    };
    let what = match file.shape {
        Shape::Text => format!("+{} -{}", file.plus, file.minus),
        Shape::Binary => "binary".to_owned(),
        Shape::Link => "link".to_owned(),
    };
    let mode = file.mode.as_ref().map_or(String::new(), |(was, is)| format!(", mode {was} to {is}"));
    format!("{mark} {} ({what}{mode})", marked(&file.path, SIGNS))
}

fn marked(text: &str, most: usize) -> String {
    cut(&runs::marked(text.as_bytes()).replace('\n', " "), most)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… [{} more signs]", &text[..at], text[at..].chars().count()),
        None => text.to_owned(),
    }
}

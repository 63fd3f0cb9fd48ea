//! `oubliette runs export`: what a run has made, as a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use runs::Delivery;
use serde_json::json;

use crate::args::Export;
use crate::exit::{Exit, usage};
use crate::render;

pub(crate) fn export(args: &Export) -> anyhow::Result<ExitCode> {
    let store = super::runs::folder(&args.store)?;
    let notes = match (&args.tar, &args.patch) {
        (Some(file), _) => {
            if is_dash(file) && io::stdout().is_terminal() {
                return Err(usage(
                    "an archive is not for a terminal: name a file, or put `| tar ...` behind it",
                ));
            }
            let delivery = Delivery::open(&store, &args.id)?;
            written(file, args.store.json, |out| Ok(delivery.tar(out)?))?
        }
        (None, Some(file)) => {
            let patch = runs::recorded_patch(&store, &args.id)?;
            // A person sees what is odd; a program gets every byte.
            let shown = is_dash(file) && io::stdout().is_terminal();
            let patch = if shown { runs::marked(&patch).into_bytes() } else { patch };
            written(file, args.store.json, |out| {
                out.write_all(&patch)?;
                Ok(Vec::new())
            })?
        }
        (None, None) => return Err(usage("say `--tar FILE` or `--patch FILE`")),
    };
    for note in &notes {
        render::note(&format!("oubliette: {}", render::shown(note)));
    }
    if args.store.json {
        let file = args.tar.as_ref().or(args.patch.as_ref());
        render::json(&json!({ "run_id": args.id, "file": file, "notes": notes }))?;
    }
    Ok(Exit::Done.into())
}

fn is_dash(file: &Path) -> bool {
    file == Path::new("-")
}

/// Writes to standard output, or to a file that is there only when it is whole.
fn written(
    file: &Path,
    json: bool,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    if is_dash(file) {
        if json {
            return Err(usage("`--json` and a file on standard output: there is room for one of them"));
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let notes = write(&mut out)?;
        out.flush()?;
        return Ok(notes);
    }
    let mut half = file.as_os_str().to_owned();
    half.push(format!(".half-{}", std::process::id()));
    let half = PathBuf::from(half);
    let place = || {
        let mut out = BufWriter::new(File::create_new(&half)?);
        let notes = write(&mut out)?;
        out.flush()?;
        drop(out);
        fs::rename(&half, file)?;
        Ok(notes)
    };
    let notes: anyhow::Result<Vec<String>> = place();
    if notes.is_err() {
        // It may not even have been begun.
        fs::remove_file(&half).ok();
    }
    notes.with_context(|| format!("cannot write {}", file.display()))
}

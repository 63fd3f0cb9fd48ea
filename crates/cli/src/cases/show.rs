//! What is said of the rows: a line for each as it is done, and everything as JSON. Rows are hostile texts: all of them are
//! cleaned before they are shown.

use std::path::Path;
use std::process::ExitCode;

use policy::Tier;
use serde_json::{Value, json};

use super::verdict::{Judged, Miss, Verdict};
use crate::command::prove::Kept;
use crate::exit::Exit;
use crate::render::{self, one_line, shown};

/// Characters of a text that are shown on a line, and in JSON.
const ON_A_LINE: usize = 160;
const IN_JSON: usize = 4000;

pub(super) struct Shown {
    json: bool,
    rows: Vec<Judged>,
    absent: Vec<(Tier, String)>,
    left_behind: bool,
}

impl Shown {
    pub(super) fn new(json: bool) -> Shown {
        Shown { json, rows: Vec::new(), absent: Vec::new(), left_behind: false }
    }

    /// A tier that cannot be had.
    pub(super) fn absent(&mut self, tier: Tier, why: &str) {
        if !self.json {
            render::line(&format!("tier {tier}: cannot be had"));
            why.trim_end().lines().for_each(|line| render::line(&format!("  {}", shown(line))));
        }
        self.absent.push((tier, why.to_owned()));
    }

    pub(super) fn begin(&self, tier: Tier) {
        if !self.json {
            render::line(&format!("tier {tier}"));
        }
    }

    /// Something runs on that nothing could end.
    pub(super) fn left_behind(&mut self) {
        self.left_behind = true;
        render::note("oubliette: processes of a row are left, and nothing ends them");
    }

    pub(super) fn row(&mut self, row: Judged) {
        let row = cleaned(row);
        if !self.json {
            lines(&row);
        }
        self.rows.push(row);
    }

    fn many(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The sum of it, and the exit code.
    pub(super) fn end(&self, kept: Option<Kept>, file: &Path, wanted: &[Tier]) -> anyhow::Result<ExitCode> {
        let [held, failed, not_here, unasked] =
            [Verdict::Held, Verdict::Failed, Verdict::NotApplicable, Verdict::CouldNotBeAsked]
                .map(|v| self.many(v));
        let holds = failed == 0 && unasked == 0 && !self.left_behind && !self.rows.is_empty();
        let absent: Vec<Value> =
            self.absent.iter().map(|(tier, why)| json!({"tier": tier, "reason": shown(why)})).collect();
        let whole = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "file": shown(&file.display().to_string()),
            "holds": holds,
            "counts": {"held": held, "failed": failed, "not_applicable": not_here, "could_not_be_asked": unasked},
            "rows": self.rows,
            "absent": absent,
        });
        if self.json {
            render::json(&whole)?;
        } else {
            render::line(&format!(
                "{held} held, {failed} failed, {not_here} not applicable, {unasked} could not be asked"
            ));
        }
        if let Some(kept) = kept {
            kept.write(&whole)?;
        }
        let asked_in_vain = !wanted.is_empty() && !self.absent.is_empty();
        let exit = match holds {
            false if !self.rows.is_empty() => Exit::Failed,
            true if !asked_in_vain => Exit::Done,
            true | false => Exit::Refused,
        };
        Ok(exit.into())
    }
}

/// No text of a row, or of what a guest said, may drive a terminal, wherever it is shown.
fn cleaned(row: Judged) -> Judged {
    let text = |text: &str| shown(text).chars().take(IN_JSON).collect::<String>();
    let miss = |miss: Miss| Miss { key: miss.key, expected: text(&miss.expected), got: text(&miss.got) };
    Judged {
        id: one_line(&row.id, 200),
        class: one_line(&row.class, 200),
        why: text(&row.why),
        misses: row.misses.into_iter().map(miss).collect(),
        ..row
    }
}

fn lines(row: &Judged) {
    let seconds = std::time::Duration::from_millis(row.duration_ms).as_secs_f64();
    let verdict = row.verdict.as_str();
    let why = match row.verdict {
        Verdict::Held => format!("{seconds:.1} s"),
        Verdict::Failed | Verdict::NotApplicable | Verdict::CouldNotBeAsked => one_line(&row.why, ON_A_LINE),
    };
    let line = format!(
        "  {:<10} {:<20} expected {:<16} got {:<8} {verdict:<17} {why}",
        row.id, row.class, row.expected, row.got
    );
    render::line(line.trim_end());
    for miss in &row.misses {
        render::line(&format!(
            "    {}: expected {}, got {}",
            miss.key,
            one_line(&miss.expected, ON_A_LINE),
            one_line(&miss.got, ON_A_LINE)
        ));
    }
}

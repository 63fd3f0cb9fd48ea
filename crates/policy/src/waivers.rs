//! `foundry.toml`: the operator's word that one named finding is meant. Never part of a Guild.
//!
//! A waiver names the finding and its place exactly, says why, and ends. One whose day has passed is a fault of the
//! file: somebody has to look at it again.

mod raw;

use serde::Serialize;

use crate::document::Document;
use crate::narrower::{Code, Finding};
use crate::shown::shown;
use crate::{Date, Faults, ShapeError};

use raw::{RawFoundry, RawWaiver};

pub(crate) use raw::SCHEMA as KEYS;

/// Characters of a reason.
const MAX_REASON: usize = 400;
/// Waivers of one file.
const MAX_WAIVERS: usize = 200;

/// The waivers that hold today.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waivers {
    waivers: Vec<Waiver>,
}

/// One finding that the operator means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiver {
    /// Its code.
    pub finding: Code,
    /// Its place, exactly as a report says it.
    pub place: String,
    /// When given: what is there now, exactly as a report says it. Anything else at this place is not waived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// Why.
    pub reason: String,
    /// The last day on which it holds.
    pub expires: Date,
}

impl Waivers {
    /// Reads the text of a `foundry.toml`; `file` is only its name in messages, `today` the day on which it is read.
    ///
    /// # Errors
    /// Every fault of the file at once; a waiver whose day has passed is one.
    pub fn parse(file: &str, text: &str, today: Date) -> Result<Waivers, Faults> {
        let (raw, mut doc) = Document::read_dated::<RawFoundry>(file, text, &KEYS, advise)?;
        let written = raw.waiver.unwrap_or_default();
        if written.len() > MAX_WAIVERS {
            let help = format!("at most {MAX_WAIVERS} are read");
            doc.bad("waiver", format!("has {} entries", written.len()), help);
            return Err(doc.fail());
        }
        let mut waivers: Vec<Waiver> = Vec::new();
        for (n, raw) in written.into_iter().enumerate() {
            let key = format!("waiver[{n}]");
            let Some(waiver) = raw.and_then(|raw| read(&key, raw, today, &mut doc)) else { continue };
            let same =
                |w: &Waiver| w.finding == waiver.finding && w.place == waiver.place && w.now == waiver.now;
            if waivers.iter().any(same) {
                doc.bad(&key, "waives what another one waives already", "remove one of them");
            }
            waivers.push(waiver);
        }
        doc.finish(Waivers { waivers })
    }

    /// The waiver of a finding, if there is one.
    pub fn of(&self, finding: &Finding) -> Option<&Waiver> {
        self.waivers.iter().find(|waiver| {
            waiver.finding == finding.code
                && waiver.place == finding.place
                && waiver.now.as_ref().is_none_or(|now| *now == finding.now)
        })
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Waiver> {
        self.waivers.iter()
    }
}

fn read(key: &str, raw: RawWaiver, today: Date, doc: &mut Document<'_>) -> Option<Waiver> {
    let RawWaiver { finding, place, now, reason, expires } = raw;
    let finding = finding.and_then(|text| code(&format!("{key}.finding"), &text, doc));
    let reason = reason.and_then(|text| {
        let text = text.trim();
        let sound =
            !text.is_empty() && text.chars().count() <= MAX_REASON && !text.chars().any(char::is_control);
        if !sound {
            let help =
                format!("write one line of at most {MAX_REASON} characters: it is shown in every report");
            doc.bad(&format!("{key}.reason"), "says nothing that could be shown", help);
        }
        sound.then(|| text.to_owned())
    });
    let expires = expires.and_then(|text| {
        let (at, date) = (format!("{key}.expires"), Date::parse(&text));
        match date {
            None => doc.bad(&at, "is not a day", "write a day, as in `2026-12-31`"),
            Some(date) if date < today => {
                doc.bad(
                    &at,
                    format!("has passed: it was good until {date}"),
                    "look at it again, or remove the waiver",
                );
            }
            Some(_) => {}
        }
        date
    });
    Some(Waiver { finding: finding?, place: place?, now, reason: reason?, expires: expires? })
}

fn code(key: &str, text: &str, doc: &mut Document<'_>) -> Option<Code> {
    match text.parse::<Code>() {
        Ok(code) if code.is_waivable() => Some(code),
        Ok(code) => {
            doc.bad(key, format!("`{code}` is no finding that could be waived"), "remove the waiver");
            None
        }
        Err(_) => {
            let all = || Code::ALL.into_iter().filter(|code| code.is_waivable()).map(Code::as_str);
            // Words are compared in lower case.
            let lower: Vec<String> = all().map(str::to_lowercase).collect();
            let near = doc.spelling.nearest(text, lower.iter().map(String::as_str));
            let help = match near.and_then(|near| all().find(|code| code.eq_ignore_ascii_case(near))) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write the code of a finding, as in `W-TOOL-ADDED`".to_owned(),
            };
            doc.bad(key, format!("there is no finding `{}`", shown(text)), help);
            None
        }
    }
}

fn advise(_: &mut ShapeError) {}

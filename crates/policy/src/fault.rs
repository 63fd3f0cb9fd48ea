//! What is wrong with a file: every fault at once, each with its place and a stable code.

use serde::Serialize;

use crate::narrower::has_key;

/// Stands where a text would have repeated a key.
const HIDDEN: &str = "(what looks like a key is not shown)";

/// The kind of a fault; the text form is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// Not TOML at all.
    Syntax,
    /// A key that does not exist.
    UnknownKey,
    /// A key that must be there.
    MissingKey,
    /// A value of another kind.
    WrongType,
    /// A value outside what is accepted.
    BadValue,
    /// A key given literally where only a variable's name is accepted.
    LiteralSecret,
    /// A path that leaves the Guild folder.
    PathEscapes,
    /// A tool that does not exist in this version.
    UnknownTool,
    /// A role that the Guild does not define.
    UnknownRole,
    /// More than the deployment gives.
    Exceeds,
    /// A file that cannot be read.
    Unreadable,
}

/// A place in a text, both counted from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its kind.
    pub code: Code,
    /// The file it is in, as the caller named it.
    pub file: String,
    /// Where in the file.
    pub place: Option<Place>,
    /// The key, dotted (`roles.coder.tools[2]`).
    pub key: String,
    /// What is wrong, a sentence without a full stop.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// All faults of a file or of a pair of files. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Faults(Vec<Fault>);

impl Code {
    /// The stable text form.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Syntax => "syntax",
            Code::UnknownKey => "unknown-key",
            Code::MissingKey => "missing-key",
            Code::WrongType => "wrong-type",
            Code::BadValue => "bad-value",
            Code::LiteralSecret => "literal-secret",
            Code::PathEscapes => "path-escapes",
            Code::UnknownTool => "unknown-tool",
            Code::UnknownRole => "unknown-role",
            Code::Exceeds => "exceeds",
            Code::Unreadable => "unreadable",
        }
    }
}

impl Faults {
    /// `Err` when anything was found, `Ok(value)` otherwise.
    ///
    /// # Errors
    /// The faults, sorted by file and place.
    pub fn or<T>(found: Vec<Fault>, value: T) -> Result<T, Faults> {
        if found.is_empty() { Ok(value) } else { Err(Faults::of(found)) }
    }

    /// What was found, sorted; the caller has found something. Whatever a fault quotes, and whoever has worded it (a
    /// parser repeats what it could not take): what looks like a key is not repeated.
    pub(crate) fn of(mut found: Vec<Fault>) -> Faults {
        for fault in &mut found {
            let Fault { code: _, file: _, place: _, key, message, help } = fault;
            for text in [key, message].into_iter().chain(help) {
                if has_key(text) {
                    HIDDEN.clone_into(text);
                }
            }
        }
        found.sort_by(|a, b| (&a.file, a.place, &a.key).cmp(&(&b.file, b.place, &b.key)));
        Faults(found)
    }

    /// The faults, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(p) = self.place {
            write!(f, ":{}:{}", p.line, p.column)?;
        }
        write!(f, ": [{}] ", self.code.as_str())?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(help) = &self.help {
            write!(f, "\n    help: {help}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r59_no_fault_repeats_a_key() {
        let quoting = "invalid type: string \"sk-Zq81abcdefghijkl\", expected a map";
        let fault = Fault {
            code: Code::BadValue,
            file: "guild.toml".to_owned(),
            place: None,
            key: "tools.ghp_Zq81abcdefghijkl".to_owned(),
            message: quoting.to_owned(),
            help: Some(quoting.to_owned()),
        };
        let told = Faults::of(vec![fault]);
        assert!(!told.to_string().contains("Zq81"), "{told}");
        assert!(!serde_json::to_string(&told).unwrap().contains("Zq81"));
    }
}

//! From the text of a TOML file to typed values and a list of everything that is wrong with it.
//!
//! ```text
//! text ─ bounded? ─ TOML? ─ values + places ─ keys in disguise? ─ shape ─ what is sound, typed ─ meaning
//! ```
//!
//! A file that is not TOML ends there. After that nothing ends early: whatever a step found wrong is taken out
//! of the values, so that the next step still sees, and judges, all the rest.

use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

use crate::narrower::{has_key, holds_key};
use crate::shown::child;
use crate::spelling::Spelling;
use crate::{Code, Fault, Faults, Place, ShapeError, check_shape};

/// Bytes of a file.
const MAX_BYTES: usize = 1 << 20;
/// Parts of one dotted key. The TOML reader bounds its brackets (80 levels) but not these.
const MAX_KEY_PARTS: usize = 8;
/// Levels of tables and lists.
const MAX_DEPTH: usize = 8;
/// Keys and list items.
const MAX_VALUES: usize = 50_000;
/// Faults that are told; whoever has more fixes these first.
const MAX_FAULTS: usize = 200;

/// Keys under which people put a key itself, in a place where only a variable's name belongs.
const KEY_NAMES: [&str; 8] =
    ["api_key", "apikey", "key", "token", "secret", "password", "auth", "authorization"];

/// What is known about a file: where its keys are and what is wrong with them.
pub(crate) struct Document<'a> {
    file: &'a str,
    text: &'a str,
    spans: HashMap<String, Span>,
    faults: Vec<Fault>,
    /// Keys that hold a secret: nothing more is said about them.
    secret: HashSet<String>,
    /// Where values beyond [`MAX_VALUES`] begin, which were left out.
    too_many: Option<String>,
    /// What is left to be done to find words that were meant.
    pub(crate) spelling: Spelling,
    /// Whether a day may stand at a key `expires`.
    dated: bool,
}

/// Byte offsets of a key and of its value. A table's value is where its key is.
#[derive(Clone, Copy)]
struct Span {
    key: usize,
    value: usize,
}

impl<'a> Document<'a> {
    /// Reads `text` against `schema`. What comes back is sound in shape, though it may lack what was faulty;
    /// `advise` may put a better help to a mismatch.
    pub(crate) fn read<T: DeserializeOwned>(
        file: &'a str,
        text: &'a str,
        schema: &Value,
        advise: fn(&mut ShapeError),
    ) -> Result<(T, Document<'a>), Faults> {
        Document::new(file, text, false).typed(schema, advise)
    }

    /// The same for a kind of file in which something expires: the day may be written as TOML's own, and is a text.
    pub(crate) fn read_dated<T: DeserializeOwned>(
        file: &'a str,
        text: &'a str,
        schema: &Value,
        advise: fn(&mut ShapeError),
    ) -> Result<(T, Document<'a>), Faults> {
        Document::new(file, text, true).typed(schema, advise)
    }

    fn new(file: &'a str, text: &'a str, dated: bool) -> Document<'a> {
        Document {
            file,
            text,
            spans: HashMap::new(),
            faults: Vec::new(),
            secret: HashSet::new(),
            too_many: None,
            spelling: Spelling::default(),
            dated,
        }
    }

    fn typed<T: DeserializeOwned>(
        self,
        schema: &Value,
        advise: fn(&mut ShapeError),
    ) -> Result<(T, Document<'a>), Faults> {
        let mut document = self;
        let Some(mut value) = document.parse() else { return Err(document.fail()) };
        if let Some(path) = document.too_many.take() {
            // Of what is missing then, nobody can say whether it is there.
            document.faults.clear();
            let help = format!("at most {MAX_VALUES} keys and list items are read");
            document.bad(&path, "is one key or item too many: nothing else of this file was looked at", help);
            return Err(document.fail());
        }
        document.find_keys_in_disguise(&value, "");
        let mut wrong: HashSet<String> = document.secret.clone();
        for mut mismatch in check_shape(schema, &value) {
            wrong.insert(mismatch.path.clone());
            advise(&mut mismatch);
            if mismatch.code == Code::UnknownKey && is_key_name(&mismatch.path) {
                document.secret(&mismatch.path);
            } else {
                document.add(mismatch.code, &mismatch.path, mismatch.message, mismatch.help);
            }
        }
        prune(&mut value, "", &wrong);
        match serde_json::from_value(value) {
            Ok(typed) => Ok((typed, document)),
            // What was taken out was needed, or schema and types disagree: then the types decide.
            Err(_) => Err(document.fail()),
        }
    }

    /// A fault with a help.
    pub(crate) fn add(&mut self, code: Code, key: &str, message: impl Into<String>, help: Option<String>) {
        if self.is_full() || self.secret.contains(key) {
            return;
        }
        let place = Some(self.place(code, key));
        self.faults.push(Fault {
            code,
            file: self.file.to_owned(),
            place,
            key: key.to_owned(),
            message: message.into(),
            help,
        });
    }

    /// Whether no more faults are told: looking for the nearest word of another is of no use then.
    pub(crate) fn is_full(&self) -> bool {
        self.faults.len() >= MAX_FAULTS
    }

    /// A value that is not accepted, with what would be.
    pub(crate) fn bad(&mut self, key: &str, message: impl Into<String>, help: impl Into<String>) {
        self.add(Code::BadValue, key, message, Some(help.into()));
    }

    /// A key given literally. Its value is never repeated, here or by a later fault about the same key.
    pub(crate) fn secret(&mut self, key: &str) {
        let help = if key.starts_with("secrets.") || key.starts_with("network.") {
            "write only the name of the environment variable that holds it"
        } else {
            "put the key into an environment variable and write the variable's name as `api_key_env` in the \
             deployment's `[model]`"
        };
        self.add(Code::LiteralSecret, key, "seems to hold a key itself", Some(help.to_owned()));
        self.secret.insert(key.to_owned());
    }

    /// A key anywhere in the file, in a comment too: whoever has the file has it. Told by its line, and not again where
    /// a value was told.
    pub(crate) fn find_key_in_text(&mut self) {
        if !self.secret.is_empty() || self.is_full() || !has_key(self.text) {
            return;
        }
        let line = self.text.lines().position(has_key).map_or(1, |before| before + 1);
        self.faults.push(Fault {
            code: Code::LiteralSecret,
            file: self.file.to_owned(),
            place: Some(Place { line, column: 1 }),
            key: String::new(),
            message: "something here seems to hold a key itself".to_owned(),
            help: Some("take it out, also where it is a comment, and give the key out anew".to_owned()),
        });
    }

    /// `value` when nothing was found, all faults otherwise.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Faults> {
        Faults::or(self.faults, value)
    }

    /// All faults of a file of which no value could be made.
    pub(crate) fn fail(mut self) -> Faults {
        if self.faults.is_empty() {
            self.add(Code::WrongType, "", "cannot be read as this kind of file", None);
        }
        Faults::of(self.faults)
    }

    /// The values, or none where the text is not TOML that could be read.
    fn parse(&mut self) -> Option<Value> {
        if self.text.len() > MAX_BYTES {
            self.add(Code::Syntax, "", format!("is larger than {MAX_BYTES} bytes"), None);
        } else if let Some(offset) = long_key(self.text) {
            self.syntax(Some(offset), format!("a dotted key has more than {MAX_KEY_PARTS} parts"));
        } else {
            match DeTable::parse(self.text) {
                Ok(table) => return Some(self.table(table.get_ref(), "", 0)),
                Err(error) => self.syntax(error.span().map(|s| s.start), error.message().to_owned()),
            }
        }
        None
    }

    fn syntax(&mut self, offset: Option<usize>, message: String) {
        self.faults.push(Fault {
            code: Code::Syntax,
            file: self.file.to_owned(),
            place: Some(place_of(self.text, offset.unwrap_or(0))),
            key: String::new(),
            message,
            help: None,
        });
    }

    fn table(&mut self, table: &DeTable<'_>, path: &str, depth: usize) -> Value {
        let mut members = Map::new();
        for (key, value) in table {
            let path = child(path, key.get_ref());
            let at = key.span().start;
            let is_table = value.get_ref().is_table();
            self.note(&path, at, if is_table { at } else { value.span().start });
            if let Some(value) = self.value(value, &path, depth + 1) {
                members.insert(key.get_ref().to_string(), value);
            }
        }
        Value::Object(members)
    }

    /// The value, or none where a fault was told instead.
    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &str, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            self.bad(path, "is nested too deeply", format!("at most {MAX_DEPTH} levels are read"));
            return None;
        }
        if self.spans.len() > MAX_VALUES {
            self.too_many.get_or_insert_with(|| path.to_owned());
            return None;
        }
        match value.get_ref() {
            DeValue::String(text) => Some(Value::String(text.to_string())),
            DeValue::Boolean(b) => Some(Value::Bool(*b)),
            DeValue::Integer(number) => {
                let (digits, radix) = (number.as_str(), number.radix());
                let signed = i64::from_str_radix(digits, radix).map(Number::from);
                let number = signed.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from));
                if number.is_err() {
                    self.bad(path, "is too large a number", "no bound needs more than 64 bits");
                }
                number.ok().map(Value::Number)
            }
            DeValue::Float(number) => {
                let number = number.as_str().parse().ok().and_then(Number::from_f64);
                if number.is_none() {
                    self.bad(path, "is not a finite number", "write a plain decimal number");
                }
                number.map(Value::Number)
            }
            DeValue::Datetime(date)
                if self.dated
                    && path.ends_with(".expires")
                    && date.time.is_none()
                    && date.offset.is_none() =>
            {
                Some(Value::String(date.to_string()))
            }
            DeValue::Datetime(_) => {
                self.add(Code::WrongType, path, "is a date, which no key here accepts", None);
                None
            }
            DeValue::Array(items) => {
                let mut list = Vec::new();
                for (i, item) in items.iter().enumerate() {
                    let path = format!("{path}[{i}]");
                    let at = item.span().start;
                    self.note(&path, at, at);
                    // A hole keeps the numbers of the items after it.
                    list.push(self.value(item, &path, depth + 1).unwrap_or(Value::Null));
                }
                Some(Value::Array(list))
            }
            DeValue::Table(table) => Some(self.table(table, path, depth)),
        }
    }

    fn note(&mut self, path: &str, key: usize, value: usize) {
        if self.spans.len() <= MAX_VALUES {
            self.spans.insert(path.to_owned(), Span { key, value });
        }
    }

    fn find_keys_in_disguise(&mut self, value: &Value, path: &str) {
        match value {
            Value::String(text) if holds_key(text) => self.secret(path),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.find_keys_in_disguise(item, &format!("{path}[{i}]"));
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    let path = child(path, key);
                    if holds_key(key) {
                        self.secret(&path);
                    } else {
                        self.find_keys_in_disguise(value, &path);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Where a fault is: at the key when the key is wrong, at its value when that is, and for what is not
    /// there at the nearest table around it.
    fn place(&self, code: Code, key: &str) -> Place {
        let mut path = key;
        loop {
            if let Some(span) = self.spans.get(path) {
                let at_key = path != key || matches!(code, Code::UnknownKey | Code::MissingKey);
                return place_of(self.text, if at_key { span.key } else { span.value });
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or(""),
                None => return Place { line: 1, column: 1 },
            }
        }
    }
}

/// Where the keys of a file that was read once are: for findings about what it says.
pub struct Places<'a>(Option<Document<'a>>);

impl<'a> Places<'a> {
    /// Looks at the text of a file; one that cannot be read has no places.
    pub fn of(text: &'a str) -> Places<'a> {
        let mut document = Document::new("", text, true);
        let sound = document.parse().is_some();
        Places(sound.then_some(document))
    }

    /// The place of a dotted key, or of the nearest table around it; the beginning where there is none.
    pub fn find(&self, key: &str) -> Place {
        match &self.0 {
            Some(document) => document.place(Code::BadValue, key),
            None => Place { line: 1, column: 1 },
        }
    }
}

fn is_key_name(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path).trim_matches('"').to_lowercase();
    KEY_NAMES.contains(&last.as_str()) || last.replace('-', "_").ends_with("_key")
}

/// Takes out whatever `wrong` names.
fn prune(value: &mut Value, path: &str, wrong: &HashSet<String>) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| !wrong.contains(&child(path, key)));
            for (key, value) in members {
                prune(value, &child(path, key), wrong);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                let path = format!("{path}[{i}]");
                if wrong.contains(&path) {
                    *item = Value::Null;
                } else {
                    prune(item, &path, wrong);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn place_of(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or("").chars().count() + 1,
    }
}

/// The offset of a dotted key with too many parts: found before the TOML reader builds a tree of it, and in the tokens
/// of that very reader, so that both always mean the same by a text, a comment and a key.
fn long_key(text: &str) -> Option<usize> {
    let mut dots = 0;
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => {
                dots += 1;
                if dots >= MAX_KEY_PARTS {
                    return Some(token.span().start());
                }
            }
            TokenKind::Newline
            | TokenKind::Equals
            | TokenKind::Comma
            | TokenKind::LeftSquareBracket
            | TokenKind::RightSquareBracket
            | TokenKind::LeftCurlyBracket
            | TokenKind::RightCurlyBracket => dots = 0,
            TokenKind::Whitespace
            | TokenKind::Comment
            | TokenKind::LiteralString
            | TokenKind::BasicString
            | TokenKind::MlLiteralString
            | TokenKind::MlBasicString
            | TokenKind::Atom
            | TokenKind::Eof => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a.b.c.d.e.f.g.h.i";

    #[test]
    fn where_a_text_ends_is_one_question_with_one_answer() {
        for text in [
            "'''a''''",
            "'''a'''''",
            "''''''",
            r"'''\'''",
            "''",
            r"'\'",
            "'a\"'",
            "\"a'\"",
            r#""\"""#,
            r#""\\""#,
            r#""""a"""""#,
            r#""""a""""""#,
            r#""""\\""""#,
            r#""""\""""""#,
            "1 # '''",
            "1 # \"",
        ] {
            // A long key behind it is one, and what looks like one in a text or behind a `#` is none.
            assert!(long_key(&format!("x = {text}\n{LONG} = 1\n")).is_some(), "{text}");
            let hidden = format!("x = {text} # {LONG}\ny = '''\n{LONG} = 1'''\n");
            assert!(DeTable::parse(&hidden).is_ok(), "{hidden}");
            assert_eq!(long_key(&hidden), None, "{hidden}");
        }
    }

    /// Any texts of a few signs: a file that is TOML and whose many dots stand one after the other, as in no key, is
    /// never refused for a long key; and with a long key in it, it always is.
    #[test]
    fn the_scan_agrees_with_the_reader_about_any_text() {
        const SIGNS: [&str; 14] =
            ["'", "'", "'''", "\"", "\"", "\"\"\"", "\\", "\n", "#", "a", " = ", "........", "\r\n", ","];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut sound = [0, 0];
        for _ in 0..40_000 {
            let mut text = "x = ".to_owned();
            for _ in 0..9 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                text += SIGNS[usize::try_from(state % 14).unwrap()];
            }
            if DeTable::parse(&text).is_ok() {
                sound[0] += 1;
                assert_eq!(long_key(&text), None, "{text:?}");
            }
            text += &format!("\n{LONG} = 1\n");
            if DeTable::parse(&text).is_ok_and(|table| table.get_ref().contains_key("a")) {
                sound[1] += 1;
                assert!(long_key(&text).is_some(), "{text:?}");
            }
        }
        assert!(sound.iter().all(|many| *many > 100), "{sound:?}");
    }
}

//! Placeholders: `{{WORKSPACE}}` and its kin, replaced as text in one pass, so that nothing that was put in is read again.

use serde_json::Value;

/// Times a character may be repeated, and characters that the marks of a row may make together.
const MOST: usize = 16 << 20;

const NAMES: [&str; 8] = [
    "WORKSPACE",
    "WORKSPACE_NAME",
    "OUTSIDE",
    "OUTSIDE_NAME",
    "POLICY_FILE",
    "HOST_PORT",
    "HOST_IP",
    "REP:c:n",
];

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Workspace,
    WorkspaceName,
    Outside,
    OutsideName,
    PolicyFile,
    HostPort,
    HostIp,
    /// A character, so many times.
    Rep(char, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Mark(Mark),
}

/// The text with every mark replaced. One that `check` has passed has no other.
pub(super) fn fill(text: &str, of: &dyn Fn(Mark) -> String) -> String {
    let Ok(pieces) = pieces(text) else { return text.to_owned() };
    let filled = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Mark(mark) => of(mark),
    });
    filled.collect()
}

/// Every text of a value, keys too.
pub(super) fn fill_all(value: &Value, of: &dyn Fn(Mark) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, of)),
        Value::Array(items) => items.iter().map(|item| fill_all(item, of)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (fill(k, of), fill_all(v, of))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Says what is wrong with the marks of a row.
pub(super) fn check(row: &Value) -> Result<(), String> {
    let mut made = 0;
    check_in(row, &mut made)
}

fn check_in(value: &Value, made: &mut usize) -> Result<(), String> {
    let mut text = |text: &str| {
        for piece in pieces(text)? {
            if let Piece::Mark(Mark::Rep(c, n)) = piece {
                *made = made.saturating_add(n.saturating_mul(c.len_utf8()));
            }
        }
        if *made > MOST { Err(format!("its `{{{{REP:c:n}}}}` make more than {MOST} bytes")) } else { Ok(()) }
    };
    match value {
        Value::String(word) => text(word),
        Value::Array(items) => items.iter().try_for_each(|item| check_in(item, made)),
        Value::Object(map) => {
            map.keys().try_for_each(|key| text(key))?;
            map.values().try_for_each(|value| check_in(value, made))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// What opens like a mark, two braces and a capital letter, is one; every other brace is text.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(at) = rest[from..].find("{{").map(|at| at + from) {
        let inner = &rest[at + 2..];
        let name: &str =
            &inner[..inner.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(inner.len())];
        let after = &inner[name.len()..];
        let opens = name.starts_with(|c: char| c.is_ascii_uppercase());
        if !opens || !(after.starts_with("}}") || after.starts_with(':')) {
            // `{{{NAME}}` is a brace before a mark.
            from = at + 1;
            continue;
        }
        let (mark, after) = mark(name, after)?;
        found.extend([Piece::Text(&rest[..at]), Piece::Mark(mark)]);
        rest = after;
        from = 0;
    }
    found.push(Piece::Text(rest));
    Ok(found)
}

fn mark<'a>(name: &str, after: &'a str) -> Result<(Mark, &'a str), String> {
    let plain = |mark| match after.strip_prefix("}}") {
        Some(rest) => Ok((mark, rest)),
        None => Err(format!("`{{{{{name}` takes nothing behind a colon")),
    };
    match name {
        "WORKSPACE" => plain(Mark::Workspace),
        "WORKSPACE_NAME" => plain(Mark::WorkspaceName),
        "OUTSIDE" => plain(Mark::Outside),
        "OUTSIDE_NAME" => plain(Mark::OutsideName),
        "POLICY_FILE" => plain(Mark::PolicyFile),
        "HOST_PORT" => plain(Mark::HostPort),
        "HOST_IP" => plain(Mark::HostIp),
        "REP" => repeated(after)
            .ok_or_else(|| format!("`{{{{REP:c:n}}}}` is one character and a number of at most {MOST}")),
        other => Err(format!("there is no placeholder `{{{{{other}}}}}`; there are {}", NAMES.join(", "))),
    }
}

fn repeated(after: &str) -> Option<(Mark, &str)> {
    let mut chars = after.strip_prefix(':')?.chars();
    let c = chars.next()?;
    let (number, rest) = chars.as_str().strip_prefix(':')?.split_once("}}")?;
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let n = number.parse().ok().filter(|n| plain && *n <= MOST)?;
    Some((Mark::Rep(c, n), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(mark: Mark) -> String {
        match mark {
            Mark::Rep(c, n) => c.to_string().repeat(n),
            Mark::Workspace => "{{OUTSIDE}}".to_owned(),
            other => format!("<{other:?}>"),
        }
    }

    #[test]
    fn marks_are_replaced_once_and_other_braces_stay() {
        assert_eq!(fill("a{{HOST_PORT}}b{{HOST_IP}}", &of), "a<HostPort>b<HostIp>");
        assert_eq!(fill("{{WORKSPACE}}", &of), "{{OUTSIDE}}");
        assert_eq!(fill("{{x}} {{}} {{{OUTSIDE}} {{A", &of), "{{x}} {{}} {<Outside> {{A");
        assert_eq!(fill("{{REP:€:3}}{{REP:::2}}{{REP:}:2}}", &of), "€€€::}}");
    }

    #[test]
    fn a_mark_that_is_none_is_told_with_those_there_are() {
        assert!(check(&json!({"a": ["{{WORKSPCE}}"]})).unwrap_err().contains("WORKSPACE"));
        assert!(check(&json!({"{{REP:ab:1}}": 1})).is_err());
        assert!(check(&json!("{{REP:a:99999999999}}")).is_err());
        assert!(check(&json!(["{{REP:a:16000000}}", "{{REP:a:16000000}}"])).is_err());
        assert!(check(&json!("{{OUTSIDE:x}}")).is_err());
        assert!(check(&json!({"a": "{{REP:a:100000}} {% x %} {{ y }}"})).is_ok());
    }
}

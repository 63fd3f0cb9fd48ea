//! What a text of a Guild should not quote: keys, and paths of somebody's machine.

use std::collections::BTreeSet;

use serde_json::Value;

use super::disguise::in_any_form;
use crate::shown::{digest, looks_like_key};

/// Paths of one text that are told one by one.
const MOST_PATHS: usize = 100;
/// Characters of one path that are looked at.
const MOST_PATH: usize = 200;
/// First parts of paths that are a sandbox's own, and of those beneath `/usr` and `/usr/local`: whatever else is absolute
/// is of a machine.
const GUEST: [&str; 9] = ["workspace", "tmp", "usr", "bin", "sbin", "lib", "lib32", "lib64", "dev"];
const GUEST_USR: [&str; 10] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "include", "src", "local"];
const GUEST_LOCAL: [&str; 6] = ["bin", "sbin", "lib", "libexec", "share", "include"];
/// Names that are of a machine though nothing follows them. Others that stand alone are words: `/help`.
const BARE: [&str; 11] =
    ["root", "home", "etc", "proc", "sys", "var", "srv", "opt", "mnt", "boot", "private"];
/// Words before a path that is a server's, and of no file.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// First parts of paths that are of a machine wherever they stand, also where something that ends like a word goes
/// before.
const HOST: [&str; 22] = [
    "home",
    "root",
    "users",
    "etc",
    "var",
    "srv",
    "opt",
    "mnt",
    "media",
    "run",
    "proc",
    "sys",
    "boot",
    "dev",
    "private",
    "volumes",
    "lost+found",
    "snap",
    "data",
    "nfs",
    "nix",
    "backup",
];
/// Devices that every program may name.
const DEVICES: [&str; 10] =
    ["null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "fd", "shm"];

/// Whether something in the form of a key is in it, also where characters that nobody sees are strewn in, or where
/// escapes stand for some of it.
pub fn has_key(text: &str) -> bool {
    holds_key(text) || in_any_form(text, &has_password)
}

/// The same but for an address with a name and a password in it: where one is written, more can be said of it.
pub(crate) fn holds_key(text: &str) -> bool {
    in_any_form(text, &|text| looks_like_key(text) || has_bearer(text) || has_setting(text))
}

/// Whether this is so of any text or key of a value, each as it is when it has been read. In the value's own text there are
/// escapes and quotes around it, and what is looked for may not be seen behind them.
pub fn any_text(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    let mut found = false;
    every_text(value, &mut |text| found |= is(text));
    found
}

/// Whether a key begins here that goes on over further lines.
pub fn begins_key(line: &str) -> bool {
    in_any_form(line, &|text| text.contains("-----BEGIN"))
}

/// Texts and keys of a value, wherever they stand. Its reader has bounded how deep it is.
pub(super) fn every_text(value: &Value, look: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| every_text(item, look)),
        Value::Object(members) => {
            for (key, value) in members {
                look(key);
                every_text(value, look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `Bearer` and a word that nobody would write in prose.
fn has_bearer(text: &str) -> bool {
    const LEAST: usize = 16;
    let quotes = ['"', '\'', '`', '\\'];
    let mut words = text.split_ascii_whitespace().peekable();
    while let Some(word) = words.next() {
        let word = word.trim_end_matches(quotes).trim_end_matches([':', '=']).trim_end_matches(quotes);
        let is_bearer = word.len() >= 6
            && word.get(word.len() - 6..).is_some_and(|end| end.eq_ignore_ascii_case("bearer"));
        let Some(next) = words.peek().filter(|_| is_bearer) else { continue };
        let next = next.trim_start_matches(quotes);
        let token: &str =
            next.split(|c: char| !u8::try_from(c).is_ok_and(is_of_token)).next().unwrap_or_default();
        let any = |of: fn(&u8) -> bool| token.as_bytes().iter().any(of);
        let odd = any(u8::is_ascii_digit) || (any(u8::is_ascii_uppercase) && any(u8::is_ascii_lowercase));
        if token.len() >= LEAST && odd {
            return true;
        }
    }
    false
}

/// A name that ends as those of secrets do, set to a word of letters of both sizes and digits.
fn has_setting(text: &str) -> bool {
    const NAMES: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD"];
    const LEAST: usize = 20;
    const MOST: usize = 200;
    let between = [' ', '"', '\'', '`'];
    text.match_indices(['=', ':']).any(|(at, _)| {
        let head = text.get(..at).unwrap_or_default().trim_end_matches(between);
        let ends = |name: &str| {
            let from = head.len().checked_sub(name.len());
            from.and_then(|from| head.get(from..)).is_some_and(|end| end.eq_ignore_ascii_case(name))
        };
        if !NAMES.iter().any(|name| ends(name)) {
            return false;
        }
        let rest = text.get(at + 1..).unwrap_or_default().trim_start_matches(between);
        let word: Vec<u8> = rest.bytes().take(MOST).take_while(|b| is_of_token(*b)).collect();
        let any = |of: fn(&u8) -> bool| word.iter().any(of);
        word.len() >= LEAST
            && any(u8::is_ascii_digit)
            && any(u8::is_ascii_uppercase)
            && any(u8::is_ascii_lowercase)
    })
}

fn is_of_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

/// An address with a name and a password before its host.
fn has_password(text: &str) -> bool {
    text.split("://").skip(1).any(|after| {
        let authority = after.split(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '`'));
        let Some((user, _)) = authority.into_iter().next().and_then(|at| at.rsplit_once('@')) else {
            return false;
        };
        // A place for one is none.
        user.split_once(':')
            .is_some_and(|(_, word)| !word.is_empty() && !word.starts_with(['<', '$', '{', '*', '[']))
    })
}

/// Absolute paths of a machine: all of two parts or more, but for what is ordinary inside: `/workspace`, `/tmp`, `/usr`,
/// `/dev/null`; of one part a few. What goes on beyond the bound is one more, which another text does not have.
pub(super) fn host_paths(text: &str) -> BTreeSet<String> {
    let seen = text.replace(is_unseen, "");
    let text = seen.as_str();
    let (mut found, mut more) = (BTreeSet::new(), BTreeSet::new());
    let (mut before, mut until) = (' ', 0);
    for (at, c) in text.char_indices() {
        // Nearly every character of prose: nothing begins with it.
        let drive = c.is_ascii_alphabetic() && text.as_bytes().get(at + 1) == Some(&b':');
        if !matches!(c, '/' | '~' | '$' | '\\') && !drive {
            before = c;
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        let begins = begins_here(text.get(..at).unwrap_or_default(), before, c, rest);
        before = c;
        let Some(head) = begins.filter(|_| at >= until) else { continue };
        let body = rest.get(head..).unwrap_or_default();
        let path: String = body.chars().take_while(|c| is_of_path(*c)).take(MOST_PATH).collect();
        let path = format!("{}{path}", rest.get(..head).unwrap_or_default());
        // What follows a drive, or a home, is of that path; a second path after a colon is not.
        until = if c == '/' { until } else { at + path.len() };
        let path = path.trim_end_matches(['.', ',', ':']).to_owned();
        if c != '/' || is_host(&path, &begins_how(text.get(..at).unwrap_or_default())) {
            if found.len() < MOST_PATHS {
                found.insert(path);
            } else if !found.contains(&path) {
                more.insert(path);
            }
        }
    }
    if !more.is_empty() {
        let all = more.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        found.insert(format!("{} more, {}", more.len(), digest(&all)));
    }
    found
}

/// Whether a path begins with `c`, and the bytes before what is of a path.
fn begins_here(head: &str, before: char, c: char, rest: &str) -> Option<usize> {
    match c {
        '/' => {
            let address = before == ':' && rest.starts_with("//");
            ((begins_path(before) && !address) || head.ends_with("file://")).then_some(0)
        }
        // Of whoever runs it, or of somebody by name.
        '~' => {
            let name: usize = rest.bytes().skip(1).take_while(|b| is_of_name(*b)).take(33).count();
            let sound = name == 0 || !rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
            (sound && begins_path(before) && rest.as_bytes().get(1 + name) == Some(&b'/')).then_some(0)
        }
        '$' => ["$HOME/", "${HOME}/"].iter().find(|home| rest.starts_with(**home)).map(|home| home.len()),
        // A share of another machine: two, a name, one, a name.
        '\\' => {
            let name = rest.strip_prefix("\\\\")?.split_once('\\');
            let begins = !matches!(before, '\\' | ':') && !before.is_ascii_alphanumeric();
            let sound = |text: &str| !text.is_empty() && text.bytes().all(is_of_name);
            let share = |text: &str| text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
            (begins && name.is_some_and(|(name, rest)| sound(name) && share(rest))).then_some(0)
        }
        c if c.is_ascii_alphabetic() && begins_path(before) => {
            let drive = rest.get(1..3) == Some(":\\");
            let slash =
                rest.get(1..3) == Some(":/") && rest.as_bytes().get(3).is_some_and(u8::is_ascii_alphanumeric);
            (drive || slash).then_some(0)
        }
        _ => None,
    }
}

fn is_of_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// Characters that are written and not seen.
fn is_unseen(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn begins_path(before: char) -> bool {
    !before.is_ascii_alphanumeric() && !matches!(before, '/' | '.' | '_' | '-' | '~' | '*')
}

/// How surely a path that begins here is one of files.
enum Begins {
    /// As a word of its own, or in quotes.
    Surely,
    /// Where a part of something else may begin as well: an expression, a place in a document, what a server is asked.
    Perhaps,
    /// Behind a name that stands for a folder: `${DIR}/x` is beneath it.
    Beneath,
    /// Behind what begins a tag, which ends so: `</root>`.
    Tag,
}

fn begins_how(head: &str) -> Begins {
    let Some(before) = head.chars().next_back() else { return Begins::Surely };
    // No further back: a text may have as many of these as it likes.
    let from = (head.len().saturating_sub(80)..head.len()).find(|at| head.is_char_boundary(*at));
    let head = head.get(from.unwrap_or_default()..).unwrap_or_default();
    if head.ends_with("file://") {
        return Begins::Surely;
    }
    if before == '<' {
        return Begins::Tag;
    }
    if before == '}' {
        let name = head.trim_end_matches('}').rsplit_once('{').map(|(_, name)| name);
        let named = name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_of_name));
        return if named { Begins::Beneath } else { Begins::Surely };
    }
    let asked = || {
        let word = head.trim_end_matches([' ', '`', '"', '\'']);
        let before = METHODS.iter().find_map(|method| word.strip_suffix(method));
        before.is_some_and(|before| !before.ends_with(char::is_alphanumeric))
    };
    let apart = before.is_whitespace()
        || matches!(before, '"' | '\'' | '`' | '(' | '[' | '{' | '>' | '=' | ':' | ',' | ';' | '|' | '&');
    if apart && !asked() { Begins::Surely } else { Begins::Perhaps }
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '~' | '@' | ':' | '\\' | ',')
}

fn is_host(path: &str, begins: &Begins) -> bool {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let mut rest = parts.into_iter();
    let (Some(first), second, third) = (rest.next(), rest.next(), rest.next()) else { return false };
    let name = first.to_ascii_lowercase();
    let known = match second {
        Some(device) if name == "dev" => !DEVICES.contains(&device),
        Some(_) => HOST.contains(&name.as_str()),
        None => BARE.contains(&name.as_str()),
    };
    match begins {
        Begins::Beneath => false,
        // Two slashes begin a comment, or an address without its scheme.
        Begins::Perhaps => known,
        Begins::Surely | Begins::Tag if path.starts_with("//") => known,
        Begins::Tag if second.is_none() => false,
        Begins::Surely | Begins::Tag => {
            let Some(second) = second else { return known };
            // No file has a number for its first folder; a fraction has.
            let worded = first.chars().any(char::is_alphabetic);
            let inside = match (first, second) {
                ("usr", "local") => third.is_none_or(|third| GUEST_LOCAL.contains(&third)),
                ("usr", second) => GUEST_USR.contains(&second),
                (first, _) => GUEST.contains(&first),
            };
            known || (worded && !inside)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r58_a_key_is_found_also_with_characters_strewn_in() {
        assert!(has_key("use sk-abcdefghijklmnop") && has_key("use sk-abcd\u{200b}efghijklmnop"));
        assert!(!has_key("use the desk-top"));
    }

    /// What is shown is cleaned, quoted, or put into JSON: none of these may bring forth what was not found before.
    #[test]
    fn r59_a_key_is_found_in_whatever_form_its_text_is_shown() {
        let key = "sk-abcdefghijklmnop";
        let bearer = "Bearer abcdefgh01234567";
        for around in [
            "\n",
            "\t",
            "\r",
            "\u{b}",
            "\u{1b}[0m",
            "\u{1b}]0;x\u{7}",
            "\u{9b}1m",
            "\u{202e}",
            "\u{2028}",
            "\"",
            "é",
        ] {
            let text = format!("use{around}{key}{around}now");
            assert!(has_key(&text), "{text:?}");
            let json = Value::String(text.clone()).to_string();
            assert!(has_key(&json), "{json}");
            assert!(has_key(&Value::String(json).to_string()), "twice: {text:?}");
            let name = crate::quoted(text.as_bytes()).into_owned();
            assert!(has_key(&name), "{name}");
        }
        for within in [
            "\u{1b}[0m",
            "\u{1b}(B",
            "\u{9d}0;x\u{9c}",
            "\u{200b}",
            "\r",
            "\u{0}",
            "\\\n",
            "\\u200b",
            "\\342\\200\\213",
        ] {
            assert!(has_key(&key.replace("cd", &format!("c{within}d"))), "{within:?}");
        }
        for text in [
            "\\u0073k-abcdefghijklmnop",
            "x%0Ask-abcdefghijklmnop",
            "Bearer%20abcdefgh01234567",
            "a\\u000ask-abcdefghijklmnop",
        ] {
            assert!(has_key(text), "{text}");
        }
        for between in [
            "\n",
            "\r\n\t ",
            "\n\n",
            "\u{2028}",
            "\u{a0}",
            "\u{b}",
            "\u{1b}[0m",
            " \"",
            ": ",
            "\": \"",
            "\\n",
            "\\\n ",
        ] {
            for word in ["Bearer", "bEARER", "BEARER"] {
                let text = format!("Authorization: {word}{between}abcdefgh01234567");
                assert!(has_key(&text), "{text:?}");
            }
        }
        assert!(has_key(bearer));
        for text in [
            "docs\\ask-me-anything-at-all",
            "C:\\task-list-of-things-to-do",
            "bearer: abcdefghijklmnopqrst",
            "sk-SK\nsl-SI\nsv-SE",
        ] {
            assert!(!has_key(text), "{text}");
        }
    }

    #[test]
    fn r59_a_key_is_found_wherever_it_stands_in_a_value() {
        let key = "use\nsk-abcdefghijklmnop";
        for value in
            [serde_json::json!(key), serde_json::json!([{ "a": [key] }]), serde_json::json!({ key: 1 })]
        {
            assert!(any_text(&value, &has_key), "{value}");
        }
        assert!(!any_text(&serde_json::json!({ "a": ["b", 1, null] }), &has_key));
    }

    #[test]
    fn r58_a_token_and_a_password_in_an_address_are_keys() {
        for text in [
            "Authorization: Bearer abcdefgh01234567",
            "postgres://ann:secret@db.example/x",
            "use sk-abcd\u{1}efghijklmnop",
            "https://ann:secret@example.com",
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIaK7MDENGbPxRfiCYEXAMPLE",
            "api_token: \"abcdefABCDEF0123456789\"",
        ] {
            assert!(has_key(text), "{text}");
        }
        for text in [
            "Bearer authentication-of-requests",
            "Bearer <token>",
            "AWS_SECRET_ACCESS_KEY=<the key of your account>",
            "The key: take the first that fits, of 20 or more",
            "TOKEN=$(cat /workspace/token-of-the-test-server-1)",
            "https://ann@example.com/a:b@c",
            "https://user:<password>@example.com",
            "see http://example.com:80/x, and write to ann@example.com",
        ] {
            assert!(!has_key(text), "{text}");
        }
    }

    #[test]
    fn paths_beyond_the_bound_are_told_as_one_that_differs() {
        let many = |last: &str| {
            (0..150).map(|n| format!("/home/u{n} ")).chain([format!("/home/{last}")]).collect::<String>()
        };
        let (one, other) = (host_paths(&many("a")), host_paths(&many("b")));
        assert_eq!((one.len(), one.difference(&other).count()), (MOST_PATHS + 1, 1));
    }

    #[test]
    fn paths_of_a_machine_are_found_and_those_of_a_sandbox_are_not() {
        for text in [
            "read /home/ann/x",
            "(/etc/passwd)",
            "see file:///etc/shadow.",
            "cd ~/src",
            "C:\\Users\\ann",
            "`/root`",
            "path=/var/run/docker.sock",
            "/proc/1/environ",
            "/workspace/../etc/passwd",
            "/./etc//passwd",
            "/ho\u{200b}me/ann",
            "/et\u{1}c/passwd",
            "file:/etc/passwd",
            "volume:/var/run/x",
            "(see)/etc/passwd",
            "cd $HOME/src",
            "cd ${HOME}/src",
            "~ann/src",
            "C:/Users/ann",
            "/app/x",
            "`/code/x`",
            "[\"/srv2/x\"]",
            "/usr/local/etc/x",
            "/usr/home/ann",
            "/Workspace/x",
            "/\u{e9}tude/x",
            "in /etc",
            "file:///app/x",
            "a budGET /app/x",
            "/proc.",
            "</home/x>",
            "{\"a\": \"b\"}/etc/passwd",
            "{}/app/x",
            "a#/etc/passwd",
            "GET /etc/passwd",
            "//etc/passwd",
            "\\\\server\\share",
        ] {
            assert_eq!(host_paths(text).len(), 1, "{text}: {:?}", host_paths(text));
        }
        for text in [
            "/workspace/src and /tmp/x",
            "2>/dev/null",
            "https://example.com/home/x",
            "src/home/x and ./etc/x",
            "</div> and <br />, </root>",
            "yes/no, and/or, his / her",
            "${DIR}/x/y, {folder}/data/x",
            "GET /api/x, then `POST /api/y`",
            "#/definitions/x",
            "s/a/b/, /5/6",
            "// a/b",
            "//example.com/x",
            "/usr/local/bin/x, /usr/share/x, /usr/local",
            "/workspace, /tmp/a, /lib64/ld.so, /dev/shm/x, /dev",
            "/usr/bin/python3",
            "a 50/50 chance, C: drive",
            "/help",
            "/etc/../workspace/x",
            "https://home/x",
            "a\\\\n\\\\t",
            "about ~5/6, and $HOMEWARD/x",
        ] {
            assert!(host_paths(text).is_empty(), "{text}: {:?}", host_paths(text));
        }
    }
}

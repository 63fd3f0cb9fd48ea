//! Addresses of pages: `http` or `https`, one host, a path. Read by us alone, with the host read as everywhere.

use policy::Target;

const LONGEST: usize = 8 << 10;

/// A page's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) https: bool,
    pub(crate) target: Target,
    /// Begins with a slash, is ASCII without blanks, has no fragment.
    pub(crate) path: String,
}

impl Url {
    /// Reads a whole address. The error goes on from the address.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        let text = text.trim_matches(' ');
        if text.len() > LONGEST {
            return Err("is longer than any address".to_owned());
        }
        let (https, rest) = if let Some(rest) = after_scheme(text, "http://") {
            (false, rest)
        } else if let Some(rest) = after_scheme(text, "https://") {
            (true, rest)
        } else {
            return Err("is no `http://` or `https://` address".to_owned());
        };
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let target = Target::parse(authority, Some(if https { 443 } else { 80 }))?;
        Ok(Url { https, target, path: path(rest)? })
    }

    /// Where a redirect leads from here.
    pub(crate) fn join(&self, location: &str) -> Result<Url, String> {
        let scheme = if self.https { "https" } else { "http" };
        let before = |end: usize| self.path.get(..end).unwrap_or("/").to_owned();
        let query = self.path.find('?').unwrap_or(self.path.len());
        let location = location.trim_matches(' ');
        let relative = if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{scheme}://{rest}"));
        } else if has_scheme(location) {
            return Url::parse(location);
        } else if location.starts_with('/') {
            location.to_owned()
        } else if location.is_empty() || location.starts_with(['?', '#']) {
            before(query) + location
        } else {
            let folder = self.path[..query].rfind('/').map_or(0, |at| at + 1);
            before(folder) + location
        };
        if relative.len() > LONGEST {
            return Err("is longer than any address".to_owned());
        }
        Ok(Url { path: without_dots(&path(&relative)?), ..self.clone() })
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, usual) = if self.https { ("https", 443) } else { ("http", 80) };
        write!(f, "{scheme}://{}", self.target.host)?;
        if self.target.port != usual {
            write!(f, ":{}", self.target.port)?;
        }
        f.write_str(&self.path)
    }
}

fn after_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(scheme.len())?;
    begin.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn has_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// What follows the host, as it is sent.
fn path(rest: &str) -> Result<String, String> {
    let rest = rest.split('#').next().unwrap_or("");
    let mut out = String::with_capacity(rest.len() + 1);
    if !rest.starts_with('/') {
        out.push('/');
    }
    for byte in rest.bytes() {
        match byte {
            0..b' ' | 127 => return Err("has a control character".to_owned()),
            b'\\' => return Err("has a backslash, which some take for a slash".to_owned()),
            b' ' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 128.. => {
                out.push_str(&format!("%{byte:02X}"));
            }
            _ => out.push(char::from(byte)),
        }
    }
    Ok(out)
}

fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut parts: Vec<&str> = Vec::new();
    let mut folder = false;
    for part in path.split('/').skip(1) {
        folder = matches!(part, "." | "..");
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if folder && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_host_and_one_path() {
        for (text, read) in [
            ("http://a.example", "http://a.example/"),
            ("HTTPS://A.Example.:443/x y?q=\u{fc}#f", "https://a.example/x%20y?q=%C3%BC"),
            ("https://a.example:8443?x", "https://a.example:8443/?x"),
            ("http://[2001:db8::1]:81/", "http://[2001:db8::1]:81/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), read);
        }
    }

    #[test]
    fn w13_what_is_no_page_of_one_host_is_refused() {
        for text in [
            "",
            "a.example",
            "file:///etc/passwd",
            "ftp://a.example/",
            "http:a.example",
            "http:///x",
            "http://u:p@a.example/",
            "http://a.example\\@b.example/",
            "http://a.example\\.b.example/",
            "http://a.example%2f@b.example/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://[::ffff:127.0.0.1]/",
            "http://a.example/\r\nHost: b",
            "http://a.example\0/",
            "http://a.example:0/",
            "http://a.example:99999/",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
        assert!(Url::parse(&format!("http://a.example/{}", "x".repeat(LONGEST))).is_err());
    }

    #[test]
    fn a_redirect_leads_from_where_it_was_said() {
        let here = Url::parse("https://a.example/b/c?d").unwrap();
        for (location, there) in [
            ("/x", "https://a.example/x"),
            ("x", "https://a.example/b/x"),
            ("../../../x/./y", "https://a.example/x/y"),
            ("..", "https://a.example/"),
            ("?e", "https://a.example/b/c?e"),
            ("", "https://a.example/b/c"),
            ("//b.example/x", "https://b.example/x"),
            ("http://b.example", "http://b.example/"),
        ] {
            assert_eq!(here.join(location).unwrap().to_string(), there, "{location}");
        }
        for location in ["javascript:alert(1)", "file:///etc/passwd", "http://u@b.example/", "//0x7f.1/"] {
            assert!(here.join(location).is_err(), "{location}");
        }
    }
}

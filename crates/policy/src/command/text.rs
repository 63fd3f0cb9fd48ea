//! A shell text taken apart: its commands as words, without running or expanding anything.
//!
//! The reader knows where a POSIX shell starts a new command and what it would expand. It never says what an
//! expansion yields: it notes that there is one ([`Script::unclear`]) and hands out the text inside
//! ([`Script::nested`]). Each character is looked at a fixed number of times.

/// What a shell text holds.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The simple commands in order, however they are joined.
    pub(super) commands: Vec<Vec<Word>>,
    /// Texts that a shell would run in order to expand a word.
    pub(super) nested: Vec<String>,
    /// The first thing whose effect cannot be told from the text, as the end of "this text ...".
    pub(super) unclear: Option<&'static str>,
}

/// A word with its quotes removed.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// The text; expansions are left out.
    pub(super) text: String,
    /// Whether any of it was quoted: a quoted word is no keyword and no assignment.
    pub(super) quoted: bool,
    /// Whether the shell may make other words of it (`*.rs`, `{a,b}`). The `{}` of `find` is none of these.
    pub(super) pattern: bool,
}

/// What the next word is, when it follows a redirection.
#[derive(Clone, Copy)]
enum Redirect {
    /// A file, or `/dev/null`.
    File,
    /// Another descriptor, as in `2>&1`.
    Descriptor,
    /// The delimiter of a here-document; whether leading tabs are dropped.
    Here { tabs: bool },
}

impl Script {
    /// Takes `text` apart.
    pub(super) fn read(text: &str) -> Script {
        let mut reader = Reader {
            chars: text.chars().collect(),
            at: 0,
            word: None,
            command: Vec::new(),
            redirect: None,
            heres: Vec::new(),
            script: Script::default(),
        };
        while reader.at < reader.chars.len() {
            reader.step();
        }
        reader.end_command();
        reader.script
    }
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    word: Option<Word>,
    command: Vec<Word>,
    redirect: Option<Redirect>,
    heres: Vec<(String, bool)>,
    script: Script,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        let Some(c) = self.peek(0) else { return };
        self.at += 1;
        match c {
            ' ' | '\t' => self.end_word(),
            '\n' => {
                self.end_command();
                self.skip_here_documents();
            }
            ';' => self.end_command(),
            '|' => {
                self.end_command();
                if self.peek(0) == Some('|') {
                    self.at += 1;
                }
            }
            '&' => self.ampersand(),
            '(' | ')' => {
                self.unclear("groups commands in parentheses");
                self.end_command();
            }
            '<' | '>' => self.start_redirect(c),
            '#' if self.word.is_none() => {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            }
            '\\' => match self.peek(0) {
                Some('\n') => self.at += 1,
                Some(escaped) => {
                    self.at += 1;
                    self.push(escaped, true);
                }
                None => self.unclear("ends in the middle of a word"),
            },
            '\'' => self.single_quoted(),
            '"' => self.double_quoted(),
            '$' => self.expansion(),
            '`' => self.backquoted(),
            c => {
                if c.is_control() {
                    self.unclear("holds a control character");
                }
                self.push(c, false);
            }
        }
    }

    fn unclear(&mut self, what: &'static str) {
        self.script.unclear.get_or_insert(what);
    }

    fn push(&mut self, c: char, quoted: bool) {
        let word = self.word.get_or_insert_default();
        word.text.push(c);
        word.quoted |= quoted;
        word.pattern |= !quoted && (matches!(c, '*' | '?' | '[') || (c == '}' && word.text != "{}"));
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.redirect.take() {
            None => self.command.push(word),
            Some(Redirect::Here { tabs }) => {
                self.unclear("holds a here-document");
                self.heres.push((word.text, tabs));
            }
            Some(Redirect::Descriptor)
                if word.text == "-" || word.text.bytes().all(|b| b.is_ascii_digit()) => {}
            Some(Redirect::File) if word.text == "/dev/null" => {}
            Some(Redirect::File | Redirect::Descriptor) => self.unclear("redirects to or from a file"),
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        if self.redirect.take().is_some() {
            self.unclear("ends in the middle of a redirection");
        }
        if !self.command.is_empty() {
            self.script.commands.push(std::mem::take(&mut self.command));
        }
    }

    fn ampersand(&mut self) {
        match self.peek(0) {
            Some('>') => {
                self.end_word();
                self.at += 1;
                self.start_redirect('>');
            }
            Some('&') => {
                self.at += 1;
                self.end_command();
            }
            Some(_) | None => {
                self.unclear("leaves a command in the background");
                self.end_command();
            }
        }
    }

    fn start_redirect(&mut self, arrow: char) {
        // `2>`: digits that touch the arrow are the descriptor and no word.
        if self.word.as_ref().is_some_and(|w| !w.quoted && w.text.bytes().all(|b| b.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        let kind = match (arrow, self.peek(0), self.peek(1)) {
            ('<', Some('<'), Some('<')) => (Redirect::File, 2),
            ('<', Some('<'), Some('-')) => (Redirect::Here { tabs: true }, 2),
            ('<', Some('<'), _) => (Redirect::Here { tabs: false }, 1),
            (_, Some('&'), _) => (Redirect::Descriptor, 1),
            (_, Some('>' | '|'), _) => (Redirect::File, 1),
            (_, Some('('), _) => {
                self.unclear("runs a command inside a word");
                return;
            }
            _ => (Redirect::File, 0),
        };
        self.redirect = Some(kind.0);
        self.at += kind.1;
    }

    fn skip_here_documents(&mut self) {
        for (delimiter, tabs) in std::mem::take(&mut self.heres) {
            while self.at < self.chars.len() {
                let rest = self.chars.get(self.at..).unwrap_or_default();
                let line: String = rest.iter().take_while(|c| **c != '\n').collect();
                self.at = (self.at + line.chars().count() + 1).min(self.chars.len());
                let line = if tabs { line.trim_start_matches('\t') } else { &line };
                if line == delimiter {
                    break;
                }
            }
        }
    }

    fn single_quoted(&mut self) {
        self.word.get_or_insert_default().quoted = true;
        while let Some(c) = self.peek(0) {
            self.at += 1;
            if c == '\'' {
                return;
            }
            self.push(c, true);
        }
        self.unclear("has a quote that is not closed");
    }

    fn double_quoted(&mut self) {
        self.word.get_or_insert_default().quoted = true;
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match (c, self.peek(0)) {
                ('"', _) => return,
                ('\\', Some('\n')) => self.at += 1,
                ('\\', Some(escaped @ ('$' | '`' | '"' | '\\'))) => {
                    self.at += 1;
                    self.push(escaped, true);
                }
                ('$', _) => self.expansion(),
                ('`', _) => self.backquoted(),
                (c, _) => self.push(c, true),
            }
        }
        self.unclear("has a quote that is not closed");
    }

    /// After a `$`.
    fn expansion(&mut self) {
        self.unclear("uses `$`, whose value is not known");
        self.word.get_or_insert_default().quoted = true;
        let close = match self.peek(0) {
            Some('(') => ')',
            Some('{') => '}',
            Some(_) | None => return,
        };
        let start = self.at + 1;
        let end = self.closing(start, close);
        let inner: String = self.chars.get(start..end).unwrap_or_default().iter().collect();
        if close == ')' || inner.contains("$(") || inner.contains('`') {
            self.script.nested.push(inner);
        }
        self.at = (end + 1).min(self.chars.len());
    }

    /// After a backquote.
    fn backquoted(&mut self) {
        self.unclear("runs a command inside a word");
        self.word.get_or_insert_default().quoted = true;
        let mut inner = String::new();
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match (c, self.peek(0)) {
                ('`', _) => break,
                ('\\', Some(escaped @ ('`' | '\\' | '$'))) => {
                    self.at += 1;
                    inner.push(escaped);
                }
                (c, _) => inner.push(c),
            }
        }
        self.script.nested.push(inner);
    }

    /// The position of the bracket that closes the one before `from`, or the end.
    fn closing(&self, from: usize, close: char) -> usize {
        let open = if close == ')' { '(' } else { '{' };
        let mut depth = 0_usize;
        let mut quote = None;
        let mut at = from;
        while let Some(c) = self.chars.get(at).copied() {
            match (quote, c) {
                (Some('\''), '\'') | (Some('"'), '"') => quote = None,
                (Some('\''), _) => {}
                (_, '\\') => at += 1,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, c) if c == open => depth += 1,
                (None, c) if c == close && depth == 0 => return at,
                (None, c) if c == close => depth -= 1,
                (None, _) => {}
            }
            at += 1;
        }
        self.chars.len()
    }
}

//! The operator's lists of commands, held against what the model wants to start.
//!
//! **This is not the boundary.** A program that may run can start others, and a script can spell any name in
//! ways no reader foresees; what holds is the sandbox. The lists give a model a clear answer at once, and they
//! err to the safe side:
//!
//! - *allow*: everything must be understood and every command must be listed. What the reader cannot tell from
//!   the text (an expansion, a file redirection, a group, a background command) is refused.
//! - *deny*: what is understood must not be listed, wrappers (`env`, `timeout`, `xargs`, `find -exec`, `sh -c`,
//!   ...) looked through. What cannot be told passes, and meets the sandbox.
//!
//! A rule is a command's name, or a name and its sub-command (`git push`).

mod text;

use crate::{Decision, Shell};
use text::{Script, Word};

/// Texts inside texts (`sh -c`, `$(...)`) that are looked into.
const DEPTH: usize = 8;
/// Characters and words looked at in all, so that no nesting makes a judgement slow.
const WORK: usize = 16 << 20;
/// Words of one command that may each be the name of a command.
const STARTS: usize = 1000;
/// Words after a wrapper that may be its options, their values, or the command it starts.
const WRAPPER_REACH: usize = 64;

/// Commands that start the command named by their arguments.
const WRAPPERS: [&str; 22] = [
    "env", "command", "builtin", "exec", "nice", "nohup", "timeout", "xargs", "sudo", "doas", "su", "time",
    "stdbuf", "setsid", "ionice", "chroot", "busybox", "toybox", "watch", "flock", "unshare", "parallel",
];
/// Shells: their `-c` takes a text.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"];
/// Arguments of `find` that start a command.
const FIND_ACTIONS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
/// Words after which a shell still expects a command.
const KEYWORDS: [&str; 10] = ["if", "then", "elif", "else", "do", "while", "until", "!", "{", "}"];

/// Judges an argument vector.
pub(crate) fn judge_words(shell: &Shell, argv: &[String]) -> Decision {
    if argv.is_empty() || argv.iter().any(|word| word.contains('\0')) {
        return Decision::refuse("shell", "a command is a program and its arguments, without NUL");
    }
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    judge(shell, |judge| judge.denied_words(&words, 0), |judge| judge.allow_words(&words, 0))
}

/// Judges a text for a shell.
pub(crate) fn judge_text(shell: &Shell, text: &str) -> Decision {
    if text.contains('\0') {
        return Decision::refuse("shell", "a shell text cannot hold NUL");
    }
    judge(shell, |judge| judge.denied_text(text, 0), |judge| judge.allow_text(text, 0))
}

fn judge<'s>(
    shell: &'s Shell,
    denied: impl FnOnce(&mut Judge<'s>) -> Denied<'s>,
    allowed: impl FnOnce(&mut Judge<'s>) -> Result<(), String>,
) -> Decision {
    let mut judge = Judge { shell, work: WORK };
    if !shell.deny.is_empty() {
        match denied(&mut judge) {
            Ok(None) => {}
            Ok(Some(rule)) => {
                return Decision::refuse("shell-deny", format!("`{rule}` is refused in this deployment"));
            }
            Err(TooMuch) => return Decision::refuse("shell-deny", TOO_MUCH),
        }
    }
    if !shell.allow.is_empty()
        && let Err(reason) = allowed(&mut judge)
    {
        return Decision::refuse("shell-allow", reason);
    }
    Decision::allow("shell")
}

const TOO_MUCH: &str = "the command is nested too deeply to be checked; write it plainly";

/// More nesting than is looked into.
struct TooMuch;

/// The deny rule that was met, if any.
type Denied<'s> = Result<Option<&'s str>, TooMuch>;

struct Judge<'s> {
    shell: &'s Shell,
    work: usize,
}

impl<'s> Judge<'s> {
    fn read(&mut self, text: &str, depth: usize) -> Result<Script, TooMuch> {
        if depth > DEPTH {
            return Err(TooMuch);
        }
        self.spend(text.len())?;
        Ok(Script::read(text))
    }

    fn spend(&mut self, work: usize) -> Result<(), TooMuch> {
        self.work = self.work.checked_sub(work).ok_or(TooMuch)?;
        Ok(())
    }

    fn denied_text(&mut self, text: &str, depth: usize) -> Denied<'s> {
        let script = self.read(text, depth)?;
        for command in &script.commands {
            let prefix = |word: &&Word| !word.quoted && (is_assignment(&word.text) || is_keyword(&word.text));
            let skipped = command.iter().take_while(prefix).count();
            let words: Vec<&str> = command.iter().skip(skipped).map(|word| word.text.as_str()).collect();
            if let Some(rule) = self.denied_words(&words, depth)? {
                return Ok(Some(rule));
            }
        }
        for inner in &script.nested {
            if let Some(rule) = self.denied_text(inner, depth + 1)? {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    /// Looks at every word that may be the name of a command: the first, and what wrappers may start.
    fn denied_words(&mut self, words: &[&str], depth: usize) -> Denied<'s> {
        let mut seen = vec![false; words.len()];
        let mut starts = vec![0];
        let mut found_from = words.len();
        let mut judged = 0;
        while let Some(start) = starts.pop() {
            let Some((name, args)) = words.get(start..).and_then(<[&str]>::split_first) else { continue };
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            judged += 1;
            if judged > STARTS {
                return Err(TooMuch);
            }
            self.spend(args.len().min(WRAPPER_REACH) + 1)?;
            let name = basename(name);
            let shell = self.shell;
            if let Some(rule) = shell.deny.iter().find(|rule| is_met(rule, name, args)) {
                return Ok(Some(rule));
            }
            let mut texts: Vec<String> = Vec::new();
            if WRAPPERS.contains(&name) {
                starts.extend(wrapped(name, args).into_iter().map(|at| start + 1 + at));
                texts.extend(text_after(args, &["-c", "-S", "--split-string", "--command"]));
            }
            if SHELLS.contains(&name) {
                let takes_text =
                    |arg: &&str| arg.starts_with('-') && !arg.starts_with("--") && arg.ends_with('c');
                let at = args.iter().take(WRAPPER_REACH).position(takes_text);
                texts.extend(at.and_then(|at| args.get(at + 1)).map(|text| (*text).to_owned()));
            }
            if name == "eval" {
                texts.push(args.join(" "));
            }
            if name == "find" && start < found_from {
                // What a later `find` starts has been seen with an earlier one: no word is looked at twice.
                let until = found_from.min(words.len());
                let own = words.get(start..until).unwrap_or_default().iter().enumerate();
                starts.extend(own.filter(|(_, w)| FIND_ACTIONS.contains(w)).map(|(at, _)| start + at + 1));
                found_from = start;
            }
            for text in texts {
                if let Some(rule) = self.denied_text(&text, depth + 1)? {
                    return Ok(Some(rule));
                }
            }
        }
        Ok(None)
    }

    fn allow_text(&mut self, text: &str, depth: usize) -> Result<(), String> {
        let script = self.read(text, depth).map_err(|TooMuch| TOO_MUCH.to_owned())?;
        if let Some(unclear) = script.unclear {
            return Err(format!(
                "only listed commands may be run here, and this text {unclear}; write plain commands"
            ));
        }
        for command in &script.commands {
            if command.first().is_some_and(|word| !word.quoted && is_assignment(&word.text)) {
                return Err(
                    "only listed commands may be run here, and this text sets a variable; write plain commands"
                        .to_owned(),
                );
            }
            let words: Vec<&str> = command.iter().map(|word| word.text.as_str()).collect();
            // A file of the workspace may be named like an option or a command.
            if let Some(name) = words.first().filter(|name| starts_others(name))
                && command.iter().any(|word| word.pattern)
            {
                return Err(format!(
                    "only listed commands may be run here; use `{name}` without patterns, so that it can be checked"
                ));
            }
            self.allow_words(&words, depth)?;
        }
        Ok(())
    }

    /// The command and whatever it starts must all be listed, under their bare names: a path could name a
    /// program of the workspace.
    fn allow_words(&mut self, words: &[&str], depth: usize) -> Result<(), String> {
        let mut words = words;
        // Each turn is one wrapper further in.
        while let Some((name, args)) = words.split_first() {
            self.spend(1).map_err(|TooMuch| TOO_MUCH.to_owned())?;
            if !self.shell.allow.iter().any(|rule| starts_with(words, rule)) {
                return Err(format!("only these commands may be run here: {}", self.shell.allow.join(", ")));
            }
            if *name == "find" {
                return self.allow_found(args, depth);
            }
            if *name == "eval" {
                return self.allow_text(&args.join(" "), depth + 1);
            }
            if SHELLS.contains(name) && *name != "busybox" {
                return match args {
                    ["-c", text, ..] => self.allow_text(text, depth + 1),
                    [option, ..] if option.starts_with('-') => Err(hidden(name)),
                    _ => Ok(()),
                };
            }
            if !WRAPPERS.contains(name) {
                return Ok(());
            }
            words = match args {
                [duration, rest @ ..] if *name == "timeout" && is_amount(duration) => rest,
                [first, ..] if first.starts_with('-') || is_assignment(first) => return Err(hidden(name)),
                rest => rest,
            };
        }
        Ok(())
    }

    fn allow_found(&mut self, args: &[&str], depth: usize) -> Result<(), String> {
        if depth >= DEPTH {
            return Err(TOO_MUCH.to_owned());
        }
        for command in found_commands(args) {
            self.allow_words(command, depth + 1)?;
        }
        Ok(())
    }
}

/// Splits the commands that `find` starts from its arguments.
fn found_commands<'a>(args: &'a [&'a str]) -> Vec<&'a [&'a str]> {
    let mut commands = Vec::new();
    let mut rest = args;
    while let Some(at) = rest.iter().position(|arg| FIND_ACTIONS.contains(arg)) {
        let started = rest.get(at + 1..).unwrap_or_default();
        let ends =
            |i: &usize| started[*i] == ";" || (started[*i] == "+" && *i > 0 && started[*i - 1] == "{}");
        let end = (0..started.len()).find(ends).unwrap_or(started.len());
        let (command, after) = started.split_at(end);
        commands.push(command);
        rest = after;
    }
    commands
}

fn hidden(name: &str) -> String {
    format!("only listed commands may be run here; use `{name}` without options, so that it can be checked")
}

fn starts_with(words: &[&str], rule: &str) -> bool {
    rule.split(' ').enumerate().all(|(i, part)| words.get(i) == Some(&part))
}

/// Whether a command of this name and arguments is the one of `rule`. Options may stand before a sub-command,
/// and the word after an option may be its value.
fn is_met(rule: &str, name: &str, args: &[&str]) -> bool {
    let mut parts = rule.split(' ');
    if parts.next() != Some(name) {
        return false;
    }
    let mut wanted = parts.next();
    let mut after_option = false;
    for arg in args {
        let Some(part) = wanted else { break };
        if *arg == part {
            wanted = parts.next();
            after_option = false;
        } else if arg.starts_with('-') {
            after_option = !arg.contains('=');
        } else if !std::mem::take(&mut after_option) {
            break;
        }
    }
    wanted.is_none()
}

/// Positions in `args` where the command of a wrapper may begin. Which of its options take a value is not
/// known, so a word after an option counts as both.
fn wrapped(name: &str, args: &[&str]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut operands = usize::from(matches!(name, "chroot" | "flock"));
    let mut after_option = false;
    for (at, arg) in args.iter().enumerate().take(WRAPPER_REACH) {
        if arg.starts_with('-') {
            after_option = true;
        } else if is_assignment(arg) || is_amount(arg) {
            after_option = false;
        } else {
            found.push(at);
            if std::mem::take(&mut after_option) {
                continue;
            }
            if operands == 0 {
                break;
            }
            operands -= 1;
        }
    }
    found
}

/// The text given to one of `options`, as the next word or after `=`.
fn text_after(args: &[&str], options: &[&str]) -> Option<String> {
    args.iter().take(WRAPPER_REACH).enumerate().find_map(|(at, arg)| {
        let (option, text) = arg.split_once('=').map_or((*arg, None), |(o, t)| (o, Some(t)));
        options
            .contains(&option)
            .then(|| text.or_else(|| args.get(at + 1).copied()))
            .flatten()
            .map(str::to_owned)
    })
}

/// Whether a command's arguments may name further commands.
fn starts_others(name: &str) -> bool {
    name == "find" || name == "eval" || WRAPPERS.contains(&name) || SHELLS.contains(&name)
}

fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// `NAME=...`
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// `5`, `2.5s`: the duration of `timeout`, the number of `nice`.
fn is_amount(word: &str) -> bool {
    let number = word.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(word);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

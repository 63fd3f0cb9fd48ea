//! A file of rows: every line is read strictly, and everything that is wrong is told at once, each with its line.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use policy::check_shape;
use runs::Request;
use serde::Deserialize;
use serde_json::Value;

use super::fill;
use super::format::{
    Expect, Keys, Policy, RawCall, RawInput, RawRequest, RawRow, RawStep, Several, TrustedOp, Turn, Via,
};
use crate::exit::usage;
use crate::render::one_line;

/// Bytes a file may have, and a line of it.
const MOST_BYTES: u64 = 64 << 20;
const MOST_LINE: usize = 1 << 20;
/// Faults that are told; whoever has more fixes these first.
const MOST_FAULTS: usize = 20;
/// Times that one call may be made, and runs that go at once.
const MOST_REPEATS: u64 = 10_000;
const MOST_RUNS: usize = 16;

/// A row, understood.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) class: String,
    pub(super) policy: Policy,
    pub(super) setup: Vec<String>,
    pub(super) input: Input,
    pub(super) expect: Expect,
    /// The row as it came: placeholders are replaced in it.
    pub(super) whole: Value,
}

/// What a row does.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Command(Vec<String>),
    /// Calls of one run, and what the executor does with the workspace when it has ended.
    Calls {
        calls: Vec<Call>,
        then: Option<Trusted>,
    },
    /// Calls that are issued together.
    Parallel(Vec<Call>),
    /// Separate runs.
    Runs {
        runs: Vec<Vec<Call>>,
        at_once: bool,
    },
    /// What a model says, answer by answer.
    Turns(Vec<Answer>),
    /// Answers by a rule; the form does not say which rules there are.
    Generated,
    ImportArchive {
        path: String,
    },
    Config(Value),
    ConfigRaw(String),
    /// A change put before the gate.
    Gate {
        baseline: Value,
        proposal: Value,
    },
    /// A decision about a destination, and what its name resolves to, first and later.
    Request {
        request: Request,
        answers: Vec<Vec<IpAddr>>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Arguments,
    pub(super) repeat: Option<u64>,
}

/// What comes with a call.
#[derive(Clone, Debug)]
pub(super) enum Arguments {
    Value(Value),
    /// As the model wrote it.
    Raw(String),
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
}

/// What the executor does with a workspace.
#[derive(Clone, Debug)]
pub(super) enum Trusted {
    /// What came out; these paths are asked for.
    Collect(Vec<String>),
    Diff,
    Destroy,
}

/// Reads a file of rows.
pub(super) fn rows(file: &Path) -> anyhow::Result<Vec<Row>> {
    let name = file.display().to_string();
    let cannot = |why: &str| usage(format!("cannot read {name}: {why}"));
    let meta = std::fs::metadata(file).map_err(|e| cannot(&crate::deploy::plain(&e)))?;
    if !meta.is_file() {
        return Err(cannot("it is not a file"));
    }
    if meta.len() > MOST_BYTES {
        return Err(cannot("it is larger than 64 MiB"));
    }
    let bytes = std::fs::read(file).map_err(|e| cannot(&crate::deploy::plain(&e)))?;
    parse(&name, &bytes).map_err(|faults| usage(faults.join("\n")))
}

fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Row>, Vec<String>> {
    let mut rows = Vec::new();
    let mut faults = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let schema = schemars::schema_for!(RawRow).to_value();
    for (n, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let n = n + 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match row(&schema, line) {
            Ok(row) => match seen.insert(row.id.clone(), n) {
                Some(first) => {
                    let id = one_line(&row.id, 40);
                    faults.push(format!("{name}:{n}: the id `{id}` is that of line {first}"));
                }
                None => rows.push(row),
            },
            Err(found) => faults.extend(found.into_iter().map(|what| format!("{name}:{n}: {what}"))),
        }
        if faults.len() >= MOST_FAULTS {
            break;
        }
    }
    if faults.is_empty() && rows.is_empty() {
        faults.push(format!("{name}: there is no row in it"));
    }
    if faults.is_empty() { Ok(rows) } else { Err(faults) }
}

fn row(schema: &Value, line: &[u8]) -> Result<Row, Vec<String>> {
    if line.len() > MOST_LINE {
        return Err(vec!["a row may have 1 MiB".to_owned()]);
    }
    let one = |e: &dyn std::fmt::Display| vec![e.to_string()];
    let text = std::str::from_utf8(line).map_err(|e| one(&e))?;
    let whole = agent::parse_json(text.trim()).map_err(|e| one(&e))?;
    let wrong: Vec<String> = check_shape(schema, &whole)
        .into_iter()
        .map(|e| {
            let help = e.help.map_or(String::new(), |help| format!(" ({help})"));
            if e.path.is_empty() {
                format!("{}{help}", e.message)
            } else {
                format!("`{}`: {}{help}", e.path, e.message)
            }
        })
        .collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    fill::check(&whole).map_err(|e| vec![e])?;
    let raw = RawRow::deserialize(&whole).map_err(|e| one(&e))?;
    let input = input(raw.input).map_err(|what| vec![format!("`input`: {what}")])?;
    let digits = |mode: &String| !mode.is_empty() && u32::from_str_radix(mode, 8).is_ok();
    if !raw.expect.mode.values().all(digits) {
        return Err(vec!["`expect.mode`: a mode is octal digits, as in \"755\"".to_owned()]);
    }
    Ok(Row {
        id: raw.id,
        class: raw.class,
        policy: raw.policy,
        setup: raw.setup,
        input,
        expect: raw.expect,
        whole,
    })
}

/// Tells by its keys what an input is; keys of two kinds are none.
fn input(raw: RawInput) -> Result<Input, String> {
    let keys = match raw {
        RawInput::Command(argv) if argv.is_empty() => {
            return Err("a command line has a first word".to_owned());
        }
        RawInput::Command(argv) => return Ok(Input::Command(argv)),
        RawInput::Keys(keys) => *keys,
    };
    let Keys {
        name,
        arguments,
        arguments_raw,
        repeat,
        steps,
        parallel,
        runs,
        runs_parallel,
        turns,
        turns_repeat,
        turns_generate,
        trusted_op,
        paths,
        path,
        archive,
        config,
        config_raw,
        baseline,
        proposal,
        request,
    } = keys;
    let mut found: Vec<(&str, Result<Input, String>)> = Vec::new();
    if name.is_some() {
        let raw = RawCall { name, arguments, arguments_raw, repeat, trusted_op: None, paths: None };
        found.push(("name", call(raw).map(|call| Input::Calls { calls: vec![call], then: None })));
    } else if arguments.is_some() || arguments_raw.is_some() || repeat.is_some() {
        return Err("`arguments` and `repeat` go with `name`".to_owned());
    }
    if let Some(steps) = steps {
        found.push(("steps", self::steps(steps)));
    }
    if let Some(parallel) = parallel {
        found.push(("parallel", calls(parallel).map(Input::Parallel)));
    }
    for (key, runs, at_once) in [("runs", runs, false), ("runs_parallel", runs_parallel, true)] {
        if let Some(runs) = runs {
            found.push((key, self::runs(runs).map(|runs| Input::Runs { runs, at_once })));
        }
    }
    if let Some(turns) = turns {
        found.push(("turns", answers(turns).map(Input::Turns)));
    }
    if let Some(again) = turns_repeat {
        let once = again
            .turns
            .or(again.turn.map(|turn| vec![turn]))
            .ok_or("`turns_repeat` repeats a `turn` or `turns`")?;
        let all: Result<Vec<Answer>, String> = answers(once);
        found.push((
            "turns_repeat",
            all.map(|once| Input::Turns(std::iter::repeat_n(once, again.times).flatten().collect())),
        ));
    }
    if turns_generate.is_some() {
        found.push(("turns_generate", Ok(Input::Generated)));
    }
    if let Some(op) = trusted_op {
        found.push(("trusted_op", trusted_input(op, paths, path.or(archive))));
    } else if paths.is_some() || path.is_some() || archive.is_some() {
        return Err("`paths`, `path` and `archive` go with `trusted_op`".to_owned());
    }
    if let Some(config) = config {
        found.push(("config", Ok(Input::Config(config))));
    }
    if let Some(raw) = config_raw {
        found.push(("config_raw", Ok(Input::ConfigRaw(raw))));
    }
    match (baseline, proposal) {
        (Some(baseline), Some(proposal)) => found.push(("proposal", Ok(Input::Gate { baseline, proposal }))),
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => return Err("`baseline` and `proposal` go together".to_owned()),
    }
    if let Some(request) = request {
        found.push(("request", self::request(request)));
    }
    let names: Vec<&str> = found.iter().map(|(key, _)| *key).collect();
    if names.len() > 1 {
        return Err(format!("`{}` do not go together", names.join("`, `")));
    }
    found.pop().map_or_else(|| Err("it says nothing that is to be done".to_owned()), |(_, input)| input)
}

fn request(raw: RawRequest) -> Result<Input, String> {
    let RawRequest { via, method, url, host, port, resolves_to } = raw;
    let request = match (via, method, url, host.zip(port)) {
        (Via::HttpProxy, method, Some(url), None) => {
            Request::HttpProxy { method: method.unwrap_or_else(|| "GET".to_owned()), url }
        }
        (Via::Connect, None, None, Some((host, port))) => Request::Connect { host, port },
        (Via::Socks5, None, None, Some((host, port))) => Request::Socks5 { host, port },
        (Via::HttpProxy | Via::Connect | Via::Socks5, ..) => {
            return Err(
                "`http-proxy` goes with a `url`, `connect` and `socks5` with `host` and `port`".to_owned()
            );
        }
    };
    let address = |text: &String| text.parse().map_err(|_| format!("`{text}` is no address"));
    let answer = |list: &Vec<String>| list.iter().map(address).collect();
    Ok(Input::Request { request, answers: resolves_to.iter().map(answer).collect::<Result<_, String>>()? })
}

fn trusted_input(op: TrustedOp, paths: Option<Vec<String>>, path: Option<String>) -> Result<Input, String> {
    if op == TrustedOp::ImportArchive {
        let named = path.or_else(|| paths.and_then(|paths| paths.into_iter().next()));
        let path = named.ok_or("`import_archive` takes the `path` of an archive")?;
        return Ok(Input::ImportArchive { path });
    }
    Ok(Input::Calls { calls: Vec::new(), then: Some(trusted(op, paths)?) })
}

fn trusted(op: TrustedOp, paths: Option<Vec<String>>) -> Result<Trusted, String> {
    match op {
        TrustedOp::Collect => Ok(Trusted::Collect(paths.unwrap_or_default())),
        TrustedOp::Diff => Ok(Trusted::Diff),
        TrustedOp::Destroy => Ok(Trusted::Destroy),
        TrustedOp::ImportArchive => {
            Err("`import_archive` comes before a run, not after its calls".to_owned())
        }
    }
}

fn steps(steps: Vec<RawStep>) -> Result<Input, String> {
    let (mut calls, mut then) = (Vec::new(), None);
    for step in steps {
        if then.is_some() {
            return Err("what the executor itself does is the last step".to_owned());
        }
        match step {
            RawStep::Command(argv) => calls.push(command(argv)),
            RawStep::Keys(raw) => match raw.trusted_op {
                Some(op) if raw.name.is_none() => then = Some(trusted(op, raw.paths)?),
                Some(_) => return Err("a step is a call or a `trusted_op`".to_owned()),
                None => calls.push(call(raw)?),
            },
        }
    }
    if calls.is_empty() && then.is_none() {
        return Err("`steps` holds none".to_owned());
    }
    Ok(Input::Calls { calls, then })
}

/// A command line as a call of a run.
pub(super) fn command(argv: Vec<String>) -> Call {
    let arguments = Arguments::Value(serde_json::json!({ "argv": argv }));
    Call { name: "run_command".to_owned(), arguments, repeat: None }
}

fn runs(runs: Vec<Several>) -> Result<Vec<Vec<Call>>, String> {
    if runs.is_empty() || runs.len() > MOST_RUNS {
        return Err(format!("there may be 1 to {MOST_RUNS} runs"));
    }
    let one = |run| match run {
        Several::Calls(raw) => calls(raw),
        Several::One(raw) => calls(vec![raw]),
    };
    runs.into_iter().map(one).collect()
}

fn answers(turns: Vec<Turn>) -> Result<Vec<Answer>, String> {
    let one = |turn: Turn| {
        let raw = turn.tool_calls.into_iter().map(call);
        Ok(Answer { text: turn.content, calls: raw.collect::<Result<_, String>>()? })
    };
    turns.into_iter().map(one).collect()
}

fn calls(raw: Vec<RawCall>) -> Result<Vec<Call>, String> {
    if raw.is_empty() {
        return Err("there is no call".to_owned());
    }
    raw.into_iter().map(call).collect()
}

fn call(raw: RawCall) -> Result<Call, String> {
    let RawCall { name, arguments, arguments_raw, repeat, trusted_op, paths } = raw;
    if trusted_op.is_some() || paths.is_some() {
        return Err("`trusted_op` stands among `steps` only, as the last of them".to_owned());
    }
    let arguments = match (arguments, arguments_raw) {
        (Some(value), None) => Arguments::Value(value),
        (None, Some(raw)) => Arguments::Raw(raw),
        (None, None) => Arguments::Value(Value::Object(serde_json::Map::new())),
        (Some(_), Some(_)) => return Err("a call has `arguments` or `arguments_raw`".to_owned()),
    };
    if repeat.is_some_and(|n| n == 0 || n > MOST_REPEATS) {
        return Err(format!("`repeat` is 1 to {MOST_REPEATS}"));
    }
    Ok(Call { name: name.ok_or("a call has a `name`")?, arguments, repeat })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        parse("f.jsonl", text.as_bytes()).map(|rows| rows.len()).unwrap_err()
    }

    const ROW: &str = r#"{"id":"a","class":"c","kind":"shell","input":["true"],"expect":{"outcome":"ok"}}"#;

    #[test]
    fn a_misspelt_key_is_told_with_its_line_and_the_right_spelling() {
        let wrong = ROW.replace("\"outcome\":\"ok\"", "\"outcome\":\"ok\",\"survivers\":0");
        let told = faults(&format!("{ROW}\n\n{wrong}"));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("f.jsonl:3: ") && told[0].contains("did you mean `survivors`?"),
            "{told:?}"
        );
        for (from, to, right) in [
            ("\"kind\":\"shell\"", "\"kind\":\"shel\"", "`shell`"),
            ("[\"true\"]", "{\"stepps\":[]}", "`steps`"),
            ("\"ok\"}", "\"denyed\"}", "`denied`"),
            ("\"class\"", "\"polcy\":{},\"class\"", "`policy`"),
            ("\"class\"", "\"policy\":{\"shell\":{\"alow\":[]}},\"class\"", "`allow`"),
            (
                "\"class\"",
                "\"policy\":{\"simulate\":\"sandbox_unavailible\"},\"class\"",
                "`sandbox_unavailable`",
            ),
        ] {
            let told = faults(&ROW.replace(from, to)).concat();
            assert!(told.contains(&format!("did you mean {right}?")), "{told}");
        }
    }

    #[test]
    fn a_malformed_row_is_told_with_its_line() {
        for (text, what) in [
            ("{", "not valid JSON"),
            ("{\"id\":\"a\",\"id\":\"b\"}", "twice"),
            (&ROW.replace("[\"true\"]", "[]"), "first word"),
            (&ROW.replace("[\"true\"]", "{\"name\":\"read_file\",\"config\":{}}"), "do not go together"),
            (&ROW.replace("[\"true\"]", "{}"), "nothing that is to be done"),
            (
                &ROW.replace("[\"true\"]", r#"{"request":{"via":"connect","url":"http://a/"}}"#),
                "`host` and `port`",
            ),
            (
                &ROW.replace(
                    "[\"true\"]",
                    r#"{"request":{"via":"socks5","host":"a","port":1,"resolves_to":[["b"]]}}"#,
                ),
                "no address",
            ),
            (&ROW.replace("[\"true\"]", "\"true\""), "must be"),
            (&ROW.replace("\"a\"", "\"{{NOWHERE}}\""), "no placeholder"),
            (&ROW.replace("\"ok\"}", "\"ok\",\"mode\":{\"a\":\"rwx\"}}"), "octal"),
            (&ROW.replace(",\"kind\":\"shell\"", ""), "`kind`: is missing"),
        ] {
            let told = faults(text).concat();
            assert!(told.starts_with("f.jsonl:1: ") && told.contains(what), "{told}");
        }
        assert!(
            faults(&format!("{ROW}\n{ROW}")).concat().contains("f.jsonl:2: the id `a` is that of line 1")
        );
        assert!(faults("\n").concat().contains("no row"));
    }
}

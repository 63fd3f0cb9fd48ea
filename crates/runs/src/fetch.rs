//! `fetch_url`: the executor itself gets a page, through the same decision as every connection of a guest. It works on
//! every tier, those without a way out among them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use egress::NotFetched;
use policy::StoppedBy;
use sandbox::Cancel;
use serde::Serialize;
use serde_json::json;

use crate::clean::cut;
use crate::output::Keeper;
use crate::{Event, Run, RunError};

/// Of a URL the record holds so much.
const LONGEST_URL: usize = 2048;
/// Of what a model is shown, so many characters are for words about it.
const WORDS: usize = 500;

/// A page, or why there is none.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Call number in the run, from 1.
    pub call: u32,
    /// What may be shown of it: valid UTF-8, without control sequences, secrets masked, shortened; or one clean
    /// sentence.
    pub answer: Result<String, String>,
    /// What the server answered.
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    /// The full text, where it was shortened.
    pub artifact: Option<String>,
}

/// A page that could not be had was not refused.
fn by(why: &NotFetched) -> StoppedBy {
    match why {
        NotFetched::Refused { .. } => StoppedBy::Denied,
        NotFetched::Failed { .. } => StoppedBy::Exit,
    }
}

impl Run {
    /// Gets the text at a URL: recorded before anything is asked and after it ended.
    ///
    /// # Errors
    /// [`RunError`] when the record cannot be written, or the user ended it.
    pub async fn fetch(&self, url: &str, timeout: Duration, cancel: &Cancel) -> Result<Page, RunError> {
        let number = self.next_call();
        let timeout = timeout.min(self.bounds.timeout);
        let shown_url = self.mask(cut(url, LONGEST_URL));
        self.record.append(&Event::ToolStart {
            call: number,
            tool: "fetch_url".to_owned(),
            job: json!({ "fetch": { "url": shown_url } }),
            stdin_artifact: None,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            output_bytes: self.bounds.output,
        })?;
        let began = Instant::now();
        let most = usize::try_from(self.bounds.output).unwrap_or(usize::MAX);
        let fetched = match &self.outward {
            None => Err((
                StoppedBy::Denied,
                "nothing is granted: `network.allow` of the operator and of the Guild \
                must name the site, as `host:port`"
                    .to_owned(),
            )),
            Some(outward) => tokio::select! {
                fetched = outward.fetch(url, most) => fetched.map_err(|e| (by(&e), e.to_string())),
                () = tokio::time::sleep(timeout) => Err((StoppedBy::Timeout, "the page did not come in time".to_owned())),
                () = cancel.cancelled() => Err((StoppedBy::Cancelled, "cancelled".to_owned())),
            },
        };
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.done.fetch_add(1, Ordering::Relaxed);
        let (page, outcome) = match fetched {
            Ok(fetched) => {
                let shown = self.bounds.to_model - WORDS.min(self.bounds.to_model / 4);
                let keeper =
                    |name: &str, most| Keeper::new(&self.record, &format!("{number}-{name}"), most, shown);
                let (mut text, nothing) = (keeper("page", self.bounds.output), keeper("nothing", 0));
                text.push(fetched.text.as_bytes());
                let (text, _) = Keeper::end(text, nothing, shown)?;
                let outcome = json!({ "stopped_by": StoppedBy::Exit, "duration_ms": duration_ms, "status": fetched.status,
                    "kind": fetched.kind, "bytes": fetched.text.len(), "cut": fetched.cut });
                let page = Page {
                    call: number,
                    answer: Ok(text.text),
                    status: fetched.status,
                    url: self.mask(&fetched.url),
                    artifact: text.artifact,
                };
                (page, outcome)
            }
            Err((by, why)) => {
                let why = self.mask(&why);
                let outcome = json!({ "stopped_by": by, "duration_ms": duration_ms, "problem": why });
                (Page { call: number, answer: Err(why), status: 0, url: shown_url, artifact: None }, outcome)
            }
        };
        let artifacts = page.artifact.iter().cloned().collect();
        self.record.append(&Event::ToolEnd { call: number, outcome, artifacts })?;
        if cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(page) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use egress::{Dial, Dialing, Granted, Pinned, Resolve, Resolving};
    use policy::{HostName, HostRule, StopReason, Traffic};
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::outward::Means;
    use crate::run::tests::Rig;

    /// Every name is one public address, and behind that is this server.
    #[derive(Clone, Copy)]
    struct Site(SocketAddr);

    impl Resolve for Site {
        fn resolve<'a>(&'a self, _: &'a HostName) -> Resolving<'a> {
            Box::pin(async { Ok(vec!["203.0.113.7".parse().unwrap()]) })
        }
    }

    impl Dial for Site {
        fn dial(&self, to: Pinned) -> Dialing {
            assert_eq!(to.address().to_string(), "203.0.113.7:80");
            Box::pin(TcpStream::connect(self.0))
        }
    }

    /// A site whose page is `text`, and a run that may reach it. The run has no doors, as on `confined` and `wasm`.
    async fn opened(rig: &Rig, text: String) -> Run {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Arc::new(Site(listener.local_addr().unwrap()));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let mut run = rig.run();
        let to = HostRule::parse("site.test:80").unwrap().into();
        let means = Means { resolver: site.clone(), dialer: site };
        run.open_the_way_by(&[Granted::new(to, |_| None).unwrap()], &Traffic::default(), means).unwrap();
        assert!(!run.has_way_out());
        run
    }

    async fn fetched(run: &Run, url: &str) -> Page {
        run.fetch(url, Duration::from_secs(20), &Cancel::new().1).await.unwrap()
    }

    fn events(rig: &Rig, run: &Run) -> Vec<Value> {
        crate::show(&rig.store(), run.id()).unwrap().events
    }

    /// What a role gets with `fetch_url` where its sandbox has no way out: the page, as it may be shown.
    #[tokio::test]
    async fn r58_a_page_comes_cleaned_and_masked_to_a_run_without_doors() {
        let rig = Rig::new();
        let run = opened(&rig, "hello \x1b[31mtok-123456 b\u{202e}ye\n".to_owned()).await;
        let page = fetched(&run, "http://site.test/page?token=tok-123456").await;
        assert_eq!((page.status, page.call, &page.artifact), (200, 1, &None));
        assert_eq!(page.url, "http://site.test/page?token=[masked:TOKEN]");
        let text = page.answer.unwrap();
        assert!(text.starts_with("hello ") && text.contains("[masked:TOKEN]"), "{text:?}");
        assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text:?}");
        let events = events(&rig, &run);
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["run_start", "tool_start", "egress", "egress", "tool_end"]);
        assert_eq!(
            (&events[1]["tool"], &events[1]["job"]["fetch"]["url"]),
            (&json!("fetch_url"), &json!(page.url))
        );
        assert_eq!(
            (&events[2]["way"], &events[2]["decision"]["verdict"]),
            (&json!("fetch"), &json!("allowed"))
        );
        assert_eq!((&events[3]["event"], &events[3]["ended"]), (&json!("closed"), &json!("done")));
        let outcome = &events[4]["outcome"];
        assert_eq!((&outcome["stopped_by"], &outcome["status"]), (&json!("exit"), &json!(200)));
        let record = std::fs::read_to_string(run.dir().join("events.jsonl")).unwrap();
        assert!(!record.contains("tok-123456"), "{record}");
        let id = run.id().to_owned();
        run.finish(StopReason::Finished, "", 0).await.unwrap();
        rig.result(&id);
    }

    /// A long one is shown by head and tail; all of it is kept, masked too, and can be asked for.
    #[tokio::test]
    async fn r58_a_long_page_is_an_artifact() {
        let rig = Rig::new();
        let lines: String = (0..20_000).map(|n| format!("line {n} tok-123456\n")).collect();
        let run = opened(&rig, lines.clone()).await;
        let page = fetched(&run, "http://site.test/").await;
        let (text, artifact) = (page.answer.unwrap(), page.artifact.unwrap());
        assert!(text.starts_with("line 0 [masked:TOKEN]\n") && text.len() < lines.len() / 4);
        assert!(text.ends_with("line 19999 [masked:TOKEN]\n") && text.contains(&artifact), "{artifact}");
        let kept = run.kept(&artifact).unwrap().unwrap();
        assert_eq!(kept, lines.replace("tok-123456", "[masked:TOKEN]"));
        assert_eq!(events(&rig, &run).last().unwrap()["artifacts"], json!([artifact]));
    }

    /// What is not granted is refused in a sentence, and asked of nobody.
    #[tokio::test]
    async fn a_page_that_is_not_granted_is_refused_with_what_would_be_needed() {
        let rig = Rig::new();
        let run = opened(&rig, "never".to_owned()).await;
        let why = fetched(&run, "http://other.test/").await.answer.unwrap_err();
        assert_eq!(why, "`other.test:80` is not granted; it would have to stand in `network.allow`");
        assert_eq!(events(&rig, &run).last().unwrap()["outcome"]["stopped_by"], "denied");
        let page = fetched(&rig.run(), "http://site.test/").await;
        assert!(page.answer.unwrap_err().starts_with("nothing is granted: `network.allow`"));
    }
}

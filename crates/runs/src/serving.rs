//! Serves the connections of a guest, each on its own, until the last one is over or nothing may pass any more.

use std::sync::Arc;
use std::time::Duration;

use egress::{Asked, Egress};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};

/// How long connections have to tell their end when the sandbox is gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who serves. What is dropped serves no more, and its connections tell their end some time later.
#[derive(Debug)]
pub(crate) struct Serving {
    task: JoinHandle<()>,
    stop: Arc<Notify>,
}

impl Serving {
    /// Begins. `read` says what a connection asks for and is; after `stop` none is served any more.
    pub(crate) fn begin<K, S>(
        egress: Egress,
        arriving: mpsc::Receiver<K>,
        read: fn(K) -> (Asked, S),
        stop: Arc<Notify>,
    ) -> Serving
    where
        K: Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let task = tokio::spawn(serve(egress, arriving, read, Arc::clone(&stop)));
        Serving { task, stop }
    }

    /// Ends it, when the sandbox is gone: every connection has told its end when this returns.
    pub(crate) async fn end(mut self) {
        if tokio::time::timeout(LAST_WORDS, &mut self.task).await.is_err() {
            self.stop.notify_one();
            // Only its own panic keeps it from ending.
            (&mut self.task).await.ok();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<K, S>(
    egress: Egress,
    mut arriving: mpsc::Receiver<K>,
    read: fn(K) -> (Asked, S),
    stop: Arc<Notify>,
) where
    K: Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut open = JoinSet::new();
    let mut listening = true;
    while listening || !open.is_empty() {
        tokio::select! {
            () = stop.notified() => break,
            arrived = arriving.recv(), if listening => match arrived {
                Some(arrived) => {
                    let (asked, stream) = read(arrived);
                    let egress = egress.clone();
                    open.spawn(async move { egress.serve(asked, stream).await });
                }
                None => listening = false,
            },
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
    // An end that was only asked for comes when nobody waits for it any more.
    open.shutdown().await;
}

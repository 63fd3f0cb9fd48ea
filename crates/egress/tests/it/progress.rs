//! What is told of connections while they go on.

use egress::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{Rig, echo};

#[tokio::test]
async fn bytes_are_told_while_they_pass_and_their_sum_is_that_of_the_ends() {
    let rig = Rig::new(&["10.0.0.5:9"]);
    rig.route("10.0.0.5:9", echo().await);
    let mut guest = rig.proxy();
    assert!(guest.connect("10.0.0.5:9").await.contains(" 200 "));
    let mut heard = vec![0; 50_000];
    guest.stream.write_all(&vec![7; 50_000]).await.unwrap();
    guest.stream.read_exact(&mut heard).await.unwrap();
    rig.egress.progress();
    let told = Event::Progress { open: 1, connections: 1, up: 50_000, down: 50_000, unanswered: 0 };
    assert_eq!(rig.events().last(), Some(&told));
    rig.egress.progress();
    assert_eq!(rig.events().last(), Some(&told));
    guest.end().await;
    let (_, up, down) = rig.ends().remove(0);
    assert_eq!((up, down), (50_000, 50_000));
}

#[tokio::test]
async fn a_connection_that_is_refused_is_one_that_was_there() {
    let rig = Rig::new(&["10.0.0.5:9"]);
    rig.proxy().ask("CONNECT 10.0.0.6:9 HTTP/1.1\r\nHost: 10.0.0.6:9\r\n\r\n").await;
    rig.egress.progress();
    let told = Event::Progress { open: 0, connections: 1, up: 0, down: 0, unanswered: 0 };
    assert_eq!(rig.ended().last(), Some(&told));
}

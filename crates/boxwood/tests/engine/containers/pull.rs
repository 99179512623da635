//! Missing images are pulled, with progress events, or refused.

use boxwood_api::{ErrorCode, EventKind, SpecRequest};
use boxwood_client::ClientError;

use crate::boxes::{command, id, listed};
use crate::daemon::{Daemon, DaemonSettings};
use crate::engine::{Engine, variable};
use crate::waiting::answered;

/// A daemon that may pull images. The other tests disable it.
fn pulling(engine: &Engine) -> DaemonSettings {
    let name = match engine.name {
        "docker" => "BOXWOOD_DOCKER__PULL",
        _ => "BOXWOOD_PODMAN__PULL",
    };
    engine.daemon_settings().with(name, "missing")
}

fn with_image(image: &str) -> SpecRequest {
    SpecRequest {
        image: Some(image.to_owned()),
        ..command("echo from an image")
    }
}

fn in_registry() -> String {
    format!("{}/boxwood-test:busybox", variable("BOXWOOD_TEST_REGISTRY"))
}

async fn is_not_found(daemon: &Daemon, engine: &Engine, image: &str) {
    let before = engine.containers();
    let (session, spec) = (id("missing"), with_image(image));
    let answer = daemon.client.exec(&session, &spec);
    match answered("a command", answer).await {
        Err(ClientError::Refused {
            status: 400..500,
            code: ErrorCode::ImageNotFound,
            message,
            hint: Some(_),
            phase: None,
        }) => assert!(message.contains(image), "{message}"),
        other => panic!("`{image}`: {other:?}"),
    }
    assert!(listed(daemon).await.is_empty(), "a phantom session");
    let ours = |name: &&String| name.contains("langbot-box-missing");
    let after = engine.containers();
    assert_eq!(
        after.difference(&before).find(ours),
        None,
        "a container is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_pulled_with_news_of_it() {
    let engine = Engine::chosen();
    let image = in_registry();
    let _ = engine.try_run(&["rmi", &image]);
    let daemon = Daemon::start(&pulling(&engine)).await;
    let mut events = daemon.client.events().await.expect("events");
    let spec = with_image(&image);
    let session = id("puller");
    let exec = answered("a command", daemon.client.exec(&session, &spec));
    let news = async {
        let mut pulled = 0;
        loop {
            let event = events.next().await.expect("an event").expect("no end");
            match event.kind {
                EventKind::ImagePull(progress) => {
                    assert_eq!(event.session_id.as_str(), "puller");
                    assert_eq!(progress.image, image, "{progress:?}");
                    pulled += 1;
                }
                EventKind::SessionCreated { .. } => return pulled,
                other => panic!("{other:?} before the session"),
            }
        }
    };
    let (result, pulled) = tokio::join!(exec, answered("news", news));
    assert_eq!(result.expect("it runs").stdout, "from an image\n");
    assert!(pulled > 1, "{pulled} words about a pull");
    let delete = daemon.client.delete_session(&session);
    answered("a delete", delete).await.expect("it is deleted");
    engine.run(&["rmi", &image]);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_does_not_exist_is_reported_by_name() {
    let engine = Engine::chosen();
    let daemon = Daemon::start(&pulling(&engine)).await;
    let registry = variable("BOXWOOD_TEST_REGISTRY");
    is_not_found(&daemon, &engine, &format!("{registry}/no/such-image:1")).await;
    // Nothing listens there.
    is_not_found(&daemon, &engine, "127.0.0.1:9/no/such-image:1").await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulling_images_can_be_disabled() {
    let engine = Engine::chosen();
    let daemon = Daemon::start(&engine.daemon_settings()).await;
    let image = format!("{}/other/name:1", variable("BOXWOOD_TEST_REGISTRY"));
    is_not_found(&daemon, &engine, &image).await;
    daemon.stop().await;
}

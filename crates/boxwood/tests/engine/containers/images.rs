//! `boxwood image` on the engine's own images.

use crate::boxes::{command, id};
use crate::daemon::Daemon;
use crate::engine::{Engine, variable};
use crate::waiting::answered;
use boxwood_api::SpecRequest;

async fn well(daemon: &Daemon, args: &[&str]) -> String {
    let (well, output) = answered("a verb", daemon.verb(args)).await;
    assert!(well, "{args:?}: {output}");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_listed_imported_used_pulled_and_removed() {
    let engine = Engine::chosen();
    let daemon = Daemon::start(&engine.daemon_settings()).await;
    let on = ["--backend", engine.name];
    let ls = || async {
        let args = ["image", "ls", on[0], on[1]];
        well(&daemon, &args).await
    };
    assert!(
        ls().await.contains("boxwood-test:busybox"),
        "{}",
        ls().await
    );

    let name = format!("boxwood-imported-{}:1", engine.name);
    let tar = variable("BOXWOOD_TEST_ROOTFS_SMALL_TAR");
    well(&daemon, &["image", "import", &tar, &name, on[0], on[1]]).await;
    assert!(ls().await.contains(&name), "{}", ls().await);
    let request = SpecRequest {
        image: Some(name.clone()),
        ..command("echo imported")
    };
    let session = id("importer");
    let result = answered("a command", daemon.client.exec(&session, &request)).await;
    assert_eq!(result.expect("it runs").stdout, "imported\n");

    // Refused while a box uses the image.
    let (well_removed, output) = daemon.verb(&["image", "rm", &name, on[0], on[1]]).await;
    assert!(!well_removed && output.contains("hint:"), "{output}");
    let delete = daemon.client.delete_session(&session);
    answered("a delete", delete).await.expect("it is deleted");
    well(&daemon, &["image", "rm", &name, on[0], on[1]]).await;
    assert!(!ls().await.contains(&name), "{}", ls().await);
    let (again, output) = daemon.verb(&["image", "rm", &name, on[0], on[1]]).await;
    assert!(!again && output.contains("error:"), "{output}");

    let registry = variable("BOXWOOD_TEST_REGISTRY");
    let remote = format!("{registry}/boxwood-test:busybox");
    well(&daemon, &["image", "pull", &remote, on[0], on[1]]).await;
    assert!(ls().await.contains(&remote), "{}", ls().await);
    well(&daemon, &["image", "rm", &remote, on[0], on[1]]).await;
    let missing = format!("{registry}/no/such-image:1");
    let (pulled, output) = daemon
        .verb(&["image", "pull", &missing, on[0], on[1]])
        .await;
    assert!(!pulled && output.contains("hint:"), "{output}");
    daemon.stop().await;
}

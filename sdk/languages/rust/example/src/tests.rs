use std::{fs, path::Path};

use countersign_provider::{Reason, testing};
use serde_json::json;

use super::*;

#[test]
fn ca_is_yours() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("the folder src") {
        let path = entry.expect("a file of src").path();
        if path.extension().is_none_or(|e| e != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let code = fs::read_to_string(&path).expect("the code");
        assert!(
            !code.contains("testing::Ca"),
            "{}: the function open signs with a CA for tests, which no peer trusts: \
             put your CA's client in its place (step 4 of docs/write-a-provider.md)",
            path.file_name().unwrap_or_default().display()
        );
    }
}

#[tokio::test]
async fn certificate_leads_to_the_root() -> Result<(), Error> {
    let opened: Acme = testing::open(json!({})).await?;
    let reply = opened.sign(testing::sign_request("spiffe://example.org/web")?).await?;
    assert_eq!(reply.roots, opened.roots().await?);
    assert!(reply.chain.starts_with("-----BEGIN CERTIFICATE-----"));
    Ok(())
}

#[tokio::test]
async fn wrong_settings_are_refused() {
    for settings in [json!({"dri": "x"}), json!({"dir": 7})] {
        let refused = testing::open::<Acme>(settings).await.err().map(|e| e.reason());
        assert_eq!(refused, Some(Reason::Invalid));
    }
}

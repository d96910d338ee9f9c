//! The ways to Redis: plain, with a password, encrypted; and what is refused.

use crate::{LONG, cases, keeper};
use anyhow::{Context, Result};
use lockkeeper::ErrorKind;
use lockkeeper_lab::server::{Certificates, Lab};
use lockkeeper_lab::trials::encrypted::{asks_for_a_certificate, is_refused_by_who_trusts};

cases!(
    a_password_is_needed_and_not_shown,
    encrypted_connections_are_checked,
    a_server_that_evicts_is_refused,
    a_key_of_someone_else_is_reported_and_left_alone,
    nobody_there_is_said_plainly,
    numbers_are_reserved_once,
    what_is_no_lock_of_ours_does_not_hide_the_others,
    who_cannot_be_trusted_is_said_with_what_to_do,
    a_server_asks_for_a_certificate,
    a_file_without_a_certificate_is_refused,
);

async fn a_password_is_needed_and_not_shown(lab: &Lab) -> Result<()> {
    let server = lab.redis().password("hunter2").start()?;
    let keeper = keeper(&server).await?;
    keeper.lock("secret").ttl(LONG).acquire().await?.release().await?;
    assert!(!format!("{keeper} {keeper:?}").contains("hunter2"));
    let address = format!("redis://:wrong-hunter3@127.0.0.1:{}", server.port());
    for url in [address.as_str(), &format!("redis://127.0.0.1:{}", server.port())] {
        let error = lockkeeper::connect(url).await.expect_err("let in");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    }
    Ok(())
}

async fn encrypted_connections_are_checked(lab: &Lab) -> Result<()> {
    let server = lab.redis().tls().start()?;
    let authority = Certificates::in_folder(server.folder()).authority;
    let url = format!("{}?ca={}", server.url(), authority.display());
    let keeper = lockkeeper::connect(&url).await?;
    keeper.lock("encrypted").ttl(LONG).acquire().await?.release().await?;
    // One that nobody we trust has signed.
    let error = lockkeeper::connect(&server.url()).await.expect_err("trusted a stranger");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let error = lockkeeper::connect(&format!("{}?ca=/nowhere.pem", server.url())).await;
    let error = error.expect_err("no such file");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("/nowhere.pem"), "{error}");
    // A URL that names whom to trust does not ask for plain text.
    let plain = format!("redis://{}?ca={}", server.address(), authority.display());
    let error = lockkeeper::connect(&plain).await.expect_err("ignored");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    Ok(())
}

async fn a_server_that_evicts_is_refused(lab: &Lab) -> Result<()> {
    let server = lab.redis().config("maxmemory-policy allkeys-lru").start()?;
    let error = keeper(&server).await.expect_err("locks may vanish there");
    assert!(error.to_string().contains("allow_eviction"), "{error}");
    lockkeeper::connect(&format!("{}?allow_eviction=true", server.url())).await?;
    Ok(())
}

async fn a_key_of_someone_else_is_reported_and_left_alone(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let mut redis = server.redis()?;
    redis.ask(&["HSET", "lockkeeper:{hash}", "a", "b"])?;
    redis.ask(&["SET", "lockkeeper:{text}", "not ours"])?;
    // The first letters of what we write ourselves.
    let alike = ["Xanadu", "Yes", "Foo", "F", "Gone", "Maybe"];
    for text in alike {
        redis.ask(&["SET", &format!("lockkeeper:{{{text}}}"), text])?;
    }
    for name in ["hash", "text"].into_iter().chain(alike) {
        let error = keeper.lock(name).try_acquire().await.expect_err("took a foreign key");
        assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
        assert!(error.to_string().contains("something else"), "{error}");
        let error = keeper.lock(name).acquire().await.expect_err("took a foreign key");
        assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
    }
    // Nor does withdrawing, which goes on in the background, remove it.
    keeper.close(crate::PATIENT).await;
    assert_eq!(redis.ask(&["GET", "lockkeeper:{text}"])?.text(), Some("not ours"));
    assert_eq!(redis.ask(&["HGET", "lockkeeper:{hash}", "a"])?.text(), Some("b"));
    for text in alike {
        let key = format!("lockkeeper:{{{text}}}");
        assert_eq!(redis.ask(&["GET", &key])?.text(), Some(text));
        let helpers = redis.ask(&["EXISTS", &format!("{key}:queue"), &format!("{key}:state")])?;
        assert_eq!(helpers.number(), Some(0), "{text} has company");
    }
    Ok(())
}

async fn nobody_there_is_said_plainly(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    server.kill()?;
    let error = keeper(&server).await.expect_err("connected to nobody");
    let error = error.downcast_ref::<lockkeeper::Error>().context("our error")?;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("is Redis running there?"), "{error}");
    Ok(())
}

async fn numbers_are_reserved_once(lab: &Lab) -> Result<()> {
    let server = lab.redis().durable().start()?;
    let keeper = keeper(&server).await?;
    assert_eq!(keeper.reserve("orders", 10, 0).await?, 1);
    assert_eq!(keeper.reserve("orders", 1, 0).await?, 11);
    assert_eq!(keeper.reserve("orders", 5, 1_000).await?, 1_000);
    assert_eq!(keeper.reserve("orders", 1, 1_000).await?, 1_005);
    // Beyond what a floating-point number can tell apart.
    let far = (1 << 60) + 1;
    assert_eq!(keeper.reserve("orders", 2, far).await?, far);
    assert_eq!(keeper.reserve("orders", 1, 0).await?, far + 2);
    server.kill()?;
    server.restart()?;
    assert_eq!(keeper.reserve("orders", 1, 0).await?, far + 3);
    let error = keeper.reserve("orders", 1, u64::MAX).await.expect_err("beyond the end");
    assert_eq!(error.kind(), ErrorKind::Config);
    Ok(())
}

async fn what_is_no_lock_of_ours_does_not_hide_the_others(lab: &Lab) -> Result<()> {
    let server = lab.redis().start()?;
    let keeper = keeper(&server).await?;
    let mut redis = server.redis()?;
    let _held = keeper.lock("held").ttl(LONG).acquire().await?;
    redis.ask(&["SET", "lockkeeper:{text}", "not ours"])?;
    redis.ask(&["HSET", "lockkeeper:{hash}", "a", "b"])?;
    // What a script would take for a claim, but for its last lines; it is as large as it can be.
    let claim = r"'Xabc\n1\n1\nabc\nx\n9999\nsomeone\n' .. ";
    let put = |key: &str, value: &str| {
        let script = format!("return redis.call('SET', '{key}', {value}, 'PX', 30000)");
        server.redis()?.ask(&["EVAL", &script, "0"])
    };
    put("lockkeeper:{binary}", &format!(r"{claim} 'a\255b\n\254'"))?;
    put("lockkeeper:{large}", &format!(r"{claim} string.rep('\255', 10000000)"))?;
    put("lockkeeper:{foreign}", r"string.rep('\255', 10000000)")?;
    put(r"lockkeeper:{\255}", "'F1'")?;
    let listed = keeper.list("").await?;
    let names: Vec<_> = listed.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["binary", "held", "large"]);
    assert!(listed[0].holders[0].identity.starts_with('a'), "{:?}", listed[0]);
    assert!(listed[2].holders[0].identity.len() < 10_000, "shown in full");
    for name in ["text", "hash", "foreign"] {
        let error = keeper.show(name).await.expect_err("no lock of ours");
        assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(said.len() < 2000 && said.contains(name), "{} letters: {said:.300}", said.len());
        let error = keeper.lock(name).try_acquire().await;
        let said = format!("{error:?}");
        assert!(said.len() < 2000, "{} letters: {said:.300}", said.len());
    }
    Ok(())
}

async fn who_cannot_be_trusted_is_said_with_what_to_do(lab: &Lab) -> Result<()> {
    let (server, other) = (lab.redis().tls().start()?, lab.redis().tls().start()?);
    is_refused_by_who_trusts(&other, &server).await?;
    let error = lockkeeper::connect(&server.url()).await.expect_err("trusted a stranger");
    assert!(error.to_string().contains("ca=FILE"), "{error}");
    Ok(())
}

async fn a_server_asks_for_a_certificate(lab: &Lab) -> Result<()> {
    let server = lab.redis().tls().config("tls-auth-clients yes").start()?;
    let other = lab.redis().tls().start()?;
    asks_for_a_certificate(&server, &other, &[ErrorKind::Denied, ErrorKind::Unavailable]).await
}

async fn a_file_without_a_certificate_is_refused(lab: &Lab) -> Result<()> {
    let server = lab.redis().tls().start()?;
    let files = Certificates::in_folder(server.folder());
    let empty = server.folder().join("empty.pem");
    std::fs::write(&empty, "nothing\n")?;
    let (ca, none) = (files.authority.display(), empty.display());
    for options in [
        format!("ca={none}"),
        format!("ca={ca}&cert={none}&key={}", files.client_key.display()),
        format!("ca={ca}&cert={}&key={none}", files.client.display()),
    ] {
        let error = lockkeeper::connect(&format!("{}?{options}", server.url())).await;
        let error = error.err().context("accepted")?;
        assert_eq!(error.kind(), ErrorKind::Config, "{options}: {error:?}");
        assert!(error.to_string().contains("empty.pem"), "{options}: {error}");
    }
    Ok(())
}

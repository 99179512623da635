//! The base environment of every command.

/// Base environment of every command in a box.
pub fn environment(home: &str, root: bool) -> Vec<(String, String)> {
    const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
    let user = if root { "root" } else { "box" };
    let path = format!(
        "{home}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.boxwood/bin"
    );
    let mut environment = vec![
        ("HOME", home),
        ("USER", user),
        ("LOGNAME", user),
        ("SHELL", "/bin/sh"),
        ("PATH", &path),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm-256color"),
        ("TMPDIR", "/tmp"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    // pip, uv, requests and npm each read a different variable.
    if std::path::Path::new(CA_BUNDLE).exists() {
        for name in [
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "PIP_CERT",
            "NODE_EXTRA_CA_CERTS",
        ] {
            environment.push((name, CA_BUNDLE));
        }
    }
    environment
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

//! Chromium without a screen, driven as a person would.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use serde_json::{Value, json};

use crate::installed;

/// A browser with one window, which ends with this.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
}

/// Far longer than anything takes, so that only a hang meets it.
const DEADLINE: Duration = Duration::from_secs(300);
const AGAIN: Duration = Duration::from_millis(50);
/// How often the driver is started that finds no port.
const TRIES: u32 = 16;

impl Browser {
    /// Starts one, with nothing remembered.
    ///
    /// # Errors
    /// What is missing.
    ///
    /// # Panics
    /// Where the programs are there and do not start.
    pub fn start() -> Result<Self, String> {
        let chromium = installed("chromium")?;
        let program = installed("chromedriver")?;
        let started = (0..TRIES).find_map(|_| driver(&program));
        let (driver, port) = started.expect("the driver says its port");
        static BROWSERS: AtomicU32 = AtomicU32::new(0);
        let number = BROWSERS.fetch_add(1, Ordering::Relaxed);
        let profile = format!("meshwork-browser-{}-{number}", process::id());
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
            profile: env::temp_dir().join(profile),
        };
        let user_data = format!("--user-data-dir={}", browser.profile.display());
        let options = json!({
            "binary": chromium,
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--window-size=1400,1800", user_data,
            ],
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let made = browser.ask("POST", "/session", &wanted);
        let session = made["sessionId"].as_str();
        browser.session = session.expect("the driver starts a browser").to_owned();
        Ok(browser)
    }

    /// Opens a page, and waits until it is there.
    pub fn open(&self, address: &str) {
        self.command("/url", &json!({ "url": address }));
    }

    /// What a script returns that runs in the page.
    #[must_use]
    pub fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Types into whatever has the focus; the keys of WebDriver are private letters of Unicode.
    pub fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            let stroke = |kind: &str| json!({ "type": kind, "value": key.to_string() });
            [stroke("keyDown"), stroke("keyUp")]
        });
        let actions = json!([{
            "type": "key",
            "id": "keyboard",
            "actions": strokes.collect::<Vec<_>>(),
        }]);
        self.command("/actions", &json!({ "actions": actions }));
    }

    /// Looks until a script returns what is wished, and returns it.
    ///
    /// # Panics
    /// Where it never does.
    #[track_caller]
    pub fn until(&self, script: &str, wished: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let found = self.run(script);
            if wished(&found) {
                return found;
            }
            assert!(began.elapsed() < DEADLINE, "{script}: {found}");
            thread::sleep(AGAIN);
        }
    }

    /// What the browser and the page's scripts have complained of since this was asked last.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let logged = self.command("/se/log", &json!({ "type": "browser" }));
        let entries = logged.as_array().into_iter().flatten();
        entries.map(|entry| entry["message"].to_string()).collect()
    }

    /// Gives the page so many pixels from left to right, as on a screen or a phone.
    pub fn resize(&self, width: u32) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": size });
        self.command("/goog/cdp/execute", &command);
    }

    /// Light or dark, as the page is told that its reader prefers it.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        let command = json!({
            "cmd": "Emulation.setEmulatedMedia",
            "params": { "features": [feature] },
        });
        self.command("/goog/cdp/execute", &command);
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = exchange(self.port, method, path, &body.to_string());
        let answer = answer.expect("the driver answers");
        let value = &answer["value"];
        assert!(value["error"].is_null(), "{path}: {value}");
        value.clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // What is already gone need not be ended.
        let _ = exchange(
            self.port,
            "DELETE",
            &format!("/session/{}", self.session),
            "",
        );
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

/// A driver, and the port that it says it has. It takes a free one of IPv6, and ends where the same
/// one of IPv4 is not free.
fn driver(program: &Path) -> Option<(Child, u16)> {
    let mut driver = Command::new(program)
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the driver starts");
    let output = driver.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    let Some(port) = port else {
        driver.wait().expect("its output has ended");
        return None;
    };
    // Nobody reads what it says afterwards, and it must not wait for a reader.
    thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

fn exchange(port: u16, method: &str, path: &str, body: &str) -> io::Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    // It may keep the connection, so that its end is no end of the answer.
    for line in reader.by_ref().lines() {
        let line = line?.to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().map_err(io::Error::other)?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

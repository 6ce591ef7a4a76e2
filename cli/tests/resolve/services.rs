//! `meshwork resolve` for sources that are asked over the network.

use super::*;

#[track_caller]
fn refused(arguments: &[&str], part: &str) {
    let output = resolve(arguments, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains(part), "{said}");
}

#[test]
fn what_is_said_about_another_source_is_refused() {
    let mine = "--zone says nothing to kubernetes: leave it out, or name the source that it is for \
                (gce, tpu)";
    refused(&["kubernetes", "--zone", "z"], mine);
    refused(&["slurm", "--port", "1"], "--port says nothing to slurm");
    refused(&["tpu", "--deadline", "soon"], "a number of seconds");
    refused(&["gce", "--port", "65536"], "65536");
    refused(&["kubernetes", "--selector", "worker"], "worker:app=train");
}

#[cfg(not(feature = "services"))]
#[test]
fn a_build_without_clients_says_how_to_get_them() {
    let how = "build meshwork-cli with --features services";
    for source in ["gce", "kubernetes", "tpu"] {
        refused(&[source], how);
    }
    let found = resolve(&[], &[("TPU_NAME", "t")]);
    let said = String::from_utf8(found.stderr).unwrap();
    assert!(
        said.contains("cannot ask tpu") && said.contains(how),
        "{said}"
    );
}

#[cfg(feature = "services")]
mod asked {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_tpu_is_named_by_argument_or_by_the_environment() {
        let cluster = |output: Output| {
            let answers = json_of(&output);
            (answers["source"].clone(), answers["cluster"].clone())
        };
        let expected = (json!("tpu"), json!({"worker": ["a:1", "[::2]:8470"]}));
        let named = resolve(&["tpu", "--tpu", "grpc://a:1,[::2]", "--json"], &[]);
        assert_eq!(cluster(named), expected);
        let found = resolve(&["--json"], &[("TPU_NAME", "grpc://a:1,[::2]")]);
        assert_eq!(cluster(found), expected);
    }

    #[test]
    fn what_a_source_cannot_do_without_is_named() {
        let all = "gce cannot be asked without --project, --zone, --instance-group, --port: give";
        refused(&["gce"], all);
        let some = ["gce", "--port", "1", "--zone", "z"];
        refused(
            &some,
            "gce cannot be asked without --project, --instance-group: give",
        );
        let nowhere = ["kubernetes", "--kubeconfig", "/nowhere"];
        refused(&nowhere, "/nowhere: it cannot be read");
        refused(&["tpu"], "no TPU is named");
    }

    /// The pods of a job, from a server that plays Kubernetes for one process.
    #[test]
    fn pods_are_asked_for_and_the_token_stays_secret() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || answer_all(&listener, &pods()));
        let config = folder.path().join("config");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        });
        std::fs::write(&config, text.to_string()).unwrap();
        let arguments = [
            ["kubernetes", "--selector", "w:app=t"],
            ["--port", "2222", "--namespace"],
            ["n", "--json", "--explain"],
        ];
        let mut arguments = arguments.concat();
        arguments.extend(["--kubeconfig", config.to_str().unwrap()]);
        let output = resolve(&arguments, &[("POD_NAME", "t-1")]);
        let answers = json_of(&output);
        assert_eq!(
            answers["cluster"],
            json!({"w": ["[fd00::1]:2222", "10.0.0.2:2222"]})
        );
        assert_eq!(answers["task"], json!({"type": "w", "index": 1}));
        assert_eq!(answers["master"], json!("grpc://10.0.0.2:2222"));
        assert_eq!(answers["errors"], json!({}));
        assert!(answers["explanation"].is_array());
        let all = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8(all).unwrap().contains(TOKEN));
        drop(std::net::TcpStream::connect(address).unwrap());
        let heard = server.join().unwrap();
        assert!(heard.contains(&format!("Bearer {TOKEN}")), "{heard}");
        assert!(heard.contains("/api/v1/namespaces/n/pods"), "{heard}");
    }

    #[test]
    fn a_service_that_stays_silent_is_waited_for_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        drop(listener);
        let variables = [("GCE_METADATA_HOST", host.as_str())];
        let arguments = ["tpu", "--tpu", "t", "--deadline", "0.3", "--json"];
        let output = resolve(&arguments, &variables);
        let answers = json_of(&output);
        let errors = answers["errors"].as_object().unwrap();
        assert_eq!(errors["cluster"], errors["master"]);
        assert_eq!(errors["cluster"], errors["num_accelerators"]);
        assert!(
            errors["cluster"]
                .as_str()
                .unwrap()
                .contains("gave no answer in")
        );
        assert_eq!(output.status.code(), Some(1));
    }

    /// Answers every request with this text, until a connection brings none; says what it heard.
    fn answer_all(listener: &TcpListener, text: &str) -> String {
        let mut heard = String::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut bytes = [0; 4096];
                match stream.read(&mut bytes).unwrap() {
                    0 => break,
                    length => request.extend_from_slice(&bytes[..length]),
                }
            }
            if request.is_empty() {
                return heard;
            }
            heard.push_str(&String::from_utf8(request).unwrap());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            write!(
                stream,
                "{head}\r\ncontent-length: {}\r\n\r\n{text}",
                text.len()
            )
            .unwrap();
        }
    }

    fn pods() -> String {
        let pod = |name: &str, ip: &str| {
            json!({
                "metadata": {"name": name, "namespace": "n"},
                "status": {"phase": "Running", "podIP": ip},
            })
        };
        let items = [pod("t-1", "10.0.0.2"), pod("t-0", "fd00::1")];
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}).to_string()
    }

    const TOKEN: &str = "a-token-that-nobody-may-see";
}

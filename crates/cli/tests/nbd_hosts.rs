//! Memory of three hosts as one drive, the hosts being network namespaces behind a bridge: all well, one killed, one
//! cut off, one slowed, one that comes back. A run ends by itself, with its data verified or with one line that names
//! the host.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Came, place, skipped, tool, wait_until};

/// Bytes of each host's memory, in MiB.
const EACH: u32 = 16;

/// A bridge with a client's namespace and three hosts', all of which vanish with it.
struct Network {
    name: String,
    hosts: Vec<String>,
}

impl Network {
    /// None, said aloud, where there are no namespaces to be had.
    fn new(word: &str) -> Option<Self> {
        if !common::is_root() {
            skipped("network namespaces: not root");
            return None;
        }
        // Names of interfaces have fifteen letters at most, but those here are the namespaces' own.
        let name = format!("fw{}{word}", std::process::id());
        let hosts = (1..=3).map(|n| format!("{name}h{n}")).collect();
        let network = Self { name, hosts };
        match network.build() {
            true => Some(network),
            false => {
                skipped("network namespaces: ip(8) cannot make them here");
                None
            }
        }
    }

    fn build(&self) -> bool {
        let client = &self.name;
        let ip = |line: &str| tool("ip", &line.split(' ').collect::<Vec<_>>()).is_some();
        let bridged = ip(&format!("netns add {client}"))
            && ip(&format!("-n {client} link add br0 type bridge"))
            && ip(&format!("-n {client} addr add 10.77.0.100/24 dev br0"))
            && ip(&format!("-n {client} link set br0 up"))
            && ip(&format!("-n {client} link set lo up"));
        bridged
            && (1..).zip(&self.hosts).all(|(n, host)| {
                ip(&format!("netns add {host}"))
                    && ip(&format!("-n {client} link add v{n} type veth peer name eth0 netns {host}"))
                    && ip(&format!("-n {client} link set v{n} master br0"))
                    && ip(&format!("-n {client} link set v{n} up"))
                    && ip(&format!("-n {host} addr add 10.77.0.{n}/24 dev eth0"))
                    && ip(&format!("-n {host} link set eth0 up"))
                    && ip(&format!("-n {host} link set lo up"))
            })
    }

    /// The binary in a namespace.
    fn command(&self, namespace: &str, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_flashwright")]);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command
    }

    /// A server on host `n`, from 1, which listens when this returns.
    fn serve(&self, n: usize, folder: &Path, arguments: &[&str]) -> Server {
        let host = &self.hosts[n - 1];
        let listen = ["--listen", "0.0.0.0:10809", "--insecure"];
        let child = self
            .command(host, folder, &[arguments, &listen].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip runs");
        let server = Server(child);
        wait_until("the server", || self.is_listening(n));
        server
    }

    fn memory(&self, n: usize, folder: &Path) -> Server {
        self.serve(n, folder, &["memory", "serve", "--size", &format!("{EACH}m")])
    }

    fn is_listening(&self, n: usize) -> bool {
        let host = &self.hosts[n - 1];
        tool("ip", &["netns", "exec", host, "ss", "-Htnl", "sport", "=", ":10809"])
            .is_some_and(|said| !said.trim().is_empty())
    }

    /// How many connections of host `n` have brought it more than `bytes`.
    fn connections_with(&self, n: usize, bytes: u64) -> Option<usize> {
        let host = &self.hosts[n - 1];
        let words = ["netns", "exec", host, "ss", "-Htni", "state", "established", "sport", "=", ":10809"];
        let said = tool("ip", &words)?;
        let received = said.split_whitespace().filter_map(|word| word.strip_prefix("bytes_received:"));
        Some(received.filter_map(|text| text.parse().ok()).filter(|count: &u64| *count > bytes).count())
    }

    /// Starts a bench on a stripe over all hosts.
    fn bench(&self, folder: &Path, parameters: &str, arguments: &[&str]) -> Child {
        let member = |n: usize| format!("nbd://10.77.0.{n}/{parameters}");
        let target = format!("stripe(chunk=64k):{},{},{}", member(1), member(2), member(3));
        self.command(&self.name, folder, &[&["bench", "--target", &target][..], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip runs")
    }

    fn ip(&self, line: &str) {
        assert!(tool("ip", &line.split(' ').collect::<Vec<_>>()).is_some(), "ip {line}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.name]) {
            let _ = tool("ip", &["netns", "del", namespace]);
        }
    }
}

struct Server(Child);

impl Server {
    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a bench, which must end by itself.
fn came(mut child: Child) -> Came {
    let status = common::ended(&mut child);
    let output = child.wait_with_output().expect("its output");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Came { code: status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Writes all of a stripe at a rate that leaves time for things to happen, and reads it back.
const VERIFIED: [&str; 6] =
    ["--rw=write", "--bs=64k", "--iodepth=16", "--time_based=0", "--verify=crc32c", "--rate_iops=400"];
/// Longer than any of this takes.
const ENDLESS: [&str; 4] = ["--rw=randread", "--bs=4k", "--iodepth=64", "--runtime=300s"];

/// One line that names the host, and says what to do.
fn assert_one_clear_line(came: &Came, host: &str, words: &[&str]) {
    assert_eq!(came.code, 1, "{came:?}");
    let errors: Vec<&str> = came.err.lines().filter(|line| line.starts_with("error:")).collect();
    assert_eq!(errors.len(), 1, "{came:?}");
    assert!(errors[0].contains(host) && words.iter().any(|word| errors[0].contains(word)), "{came:?}");
    assert!(came.err.contains("hint: "), "{came:?}");
    assert!(came.err.lines().count() <= 3, "{came:?}");
}

fn wait_for_requests(network: &Network, n: usize) {
    // More than agreeing on an export takes, and the look at the device, which has one connection: the engine's have
    // their requests under way.
    wait_until("requests", || network.connections_with(n, 10_000).is_some_and(|count| count >= 2));
}

#[test]
fn memory_of_three_hosts_is_one_drive_and_a_slow_host_slows_it_down() {
    let Some(network) = Network::new("s") else { return };
    let folder = place();
    let _servers: Vec<Server> = (1..=3).map(|n| network.memory(n, folder.path())).collect();
    let done = came(network.bench(folder.path(), "", &VERIFIED));
    assert_eq!(done.code, 0, "{done:?}");
    let host = &network.hosts[1];
    let slowed =
        format!("netns exec {host} tc qdisc add dev eth0 root tbf rate 100mbit burst 64k latency 200ms");
    if tool("ip", &slowed.split(' ').collect::<Vec<_>>()).is_none() {
        return skipped("a slow link: tc has no tbf here");
    }
    // A time-out that is shorter than all of the run: a host that is slow is not silent.
    let done = came(network.bench(folder.path(), "?timeout=5", &VERIFIED));
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_host_that_is_killed_ends_the_run_with_its_name() {
    let Some(network) = Network::new("k") else { return };
    let folder = place();
    let mut servers: Vec<Server> = (1..=3).map(|n| network.memory(n, folder.path())).collect();
    let bench = network.bench(folder.path(), "?timeout=2", &ENDLESS);
    wait_for_requests(&network, 2);
    servers.remove(1).kill();
    assert_one_clear_line(&came(bench), "10.77.0.2", &["host died"]);
}

#[test]
fn a_host_that_is_cut_off_ends_the_run_with_its_name() {
    let Some(network) = Network::new("c") else { return };
    let folder = place();
    let _servers: Vec<Server> = (1..=3).map(|n| network.memory(n, folder.path())).collect();
    let bench = network.bench(folder.path(), "?timeout=2", &ENDLESS);
    wait_for_requests(&network, 3);
    network.ip(&format!("-n {} link set v3 down", network.name));
    assert_one_clear_line(&came(bench), "10.77.0.3", &["no answer within", "host died"]);
}

#[test]
fn a_host_that_comes_back_with_its_data_in_time_is_used_on() {
    let Some(network) = Network::new("b") else { return };
    let folder = place();
    let image = folder.path().join("image");
    let image = format!("file:{}?size={EACH}m", image.display());
    let export = ["volume", "export", &image];
    let _servers: Vec<Server> = [1, 2].into_iter().map(|n| network.memory(n, folder.path())).collect();
    let third = network.serve(3, folder.path(), &export);
    let bench = network.bench(folder.path(), "?timeout=60", &VERIFIED);
    // At this rate one connection may do it all; what is written is more than any look at the device.
    wait_until("writes", || network.connections_with(3, 1_000_000).is_some_and(|count| count >= 1));
    third.kill();
    let _third = network.serve(3, folder.path(), &export);
    let done = came(bench);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_host_that_comes_back_with_other_memory_is_not_used_on() {
    let Some(network) = Network::new("o") else { return };
    let folder = place();
    let _servers: Vec<Server> = [1, 2].into_iter().map(|n| network.memory(n, folder.path())).collect();
    let third = network.memory(3, folder.path());
    let bench = network.bench(folder.path(), "?timeout=60", &ENDLESS);
    wait_for_requests(&network, 3);
    third.kill();
    let _third = network.memory(3, folder.path());
    assert_one_clear_line(&came(bench), "10.77.0.3", &["another export"]);
}

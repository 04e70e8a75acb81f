import { execFile, spawn } from "node:child_process";
import { createHmac, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const readyWithinMs = 90_000;
const stopWithinMs = 10_000;
const access = { keyId: "atoll-test", secret: "atoll-test-secret", bucket: "atoll-contract" };

/** @typedef {{ endpoint: string, bucket: string, keyId: string, secret: string, stop: () => Promise<void> }} Radosgw */

/**
 * Starts a monitor, an object server that keeps everything in memory, and the gateway, on loopback, in a new directory.
 * `stop` ends them and removes the directory.
 *
 * @returns {Promise<Radosgw>}
 */
export async function startRadosgw() {
  const directory = await mkdtemp(join(tmpdir(), "atoll-radosgw-"));
  /** @type {import("node:child_process").ChildProcess[]} */
  const children = [];
  const stop = async () => {
    for (const child of children.toReversed()) await end(child);
    await rm(directory, { recursive: true, force: true });
  };
  try {
    const [monPort, httpPort] = await Promise.all([freePort(), freePort()]);
    const endpoint = `http://127.0.0.1:${httpPort}`;
    await configure(directory, monPort, httpPort);
    await startCluster(directory, monPort, children);
    const user = ["user", "create", "--uid=atoll", "--display-name=atoll"];
    await ceph(directory, "radosgw-admin", [...user, `--access-key=${access.keyId}`, `--secret-key=${access.secret}`]);
    children.push(await start(directory, "radosgw", ["-n", "client.admin"]));
    await makeBucket(endpoint);
    return { endpoint, ...access, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * @param {string} directory
 * @param {number} monPort
 * @param {import("node:child_process").ChildProcess[]} children
 */
async function startCluster(directory, monPort, children) {
  const keyring = join(directory, "keyring");
  const all = ["mon", "osd", "mgr", "mds"].flatMap((kind) => ["--cap", kind, "allow *"]);
  await run("ceph-authtool", [keyring, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"]);
  await run("ceph-authtool", [keyring, "--gen-key", "-n", "client.admin", ...all]);
  await run("ceph-authtool", [
    keyring,
    "--gen-key",
    "-n",
    "osd.0",
    "--cap",
    "mon",
    "allow profile osd",
    "--cap",
    "osd",
    "allow *",
  ]);
  const fsid = await ceph(directory, "ceph-conf", ["--lookup", "fsid"]);
  const map = join(directory, "monmap");
  await run("monmaptool", ["--create", "--addv", "a", `[v2:127.0.0.1:${monPort}]`, "--fsid", fsid.trim(), map]);
  await ceph(directory, "ceph-mon", ["-i", "a", "--mkfs", "--monmap", map]);
  children.push(await start(directory, "ceph-mon", ["-i", "a"]));
  const uuid = randomUUID();
  await ceph(directory, "ceph", ["--connect-timeout", "30", "osd", "create", uuid, "0"]);
  await ceph(directory, "ceph-osd", ["-i", "0", "--mkfs", "--osd-uuid", uuid]);
  await ceph(directory, "ceph", ["osd", "crush", "add", "0", "1.0", "host=here", "root=default"]);
  children.push(await start(directory, "ceph-osd", ["-i", "0"]));
}

/**
 * @param {string} directory
 * @param {number} monPort
 * @param {number} httpPort
 */
async function configure(directory, monPort, httpPort) {
  await Promise.all(["mon", "osd"].map((name) => mkdir(join(directory, name))));
  const settings = {
    fsid: randomUUID(),
    "mon host": `v2:127.0.0.1:${monPort}`,
    "public addr": "127.0.0.1",
    "cluster addr": "127.0.0.1",
    "run dir": directory,
    "crash dir": directory,
    keyring: join(directory, "keyring"),
    "admin socket": "",
    "log file": "",
    "mon data": join(directory, "mon"),
    "osd data": join(directory, "osd"),
    "osd objectstore": "memstore",
    "memstore device bytes": 2 << 30,
    "osd pool default size": 1,
    "osd pool default min size": 1,
    "osd pool default pg num": 1,
    "osd pool default pgp num": 1,
    "osd crush chooseleaf type": 0,
    "mon allow pool size one": true,
    "rgw frontends": `beast endpoint=127.0.0.1:${httpPort}`,
    "rgw thread pool size": 32,
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  await writeFile(join(directory, "ceph.conf"), `[global]\n${lines.join("\n")}\n`);
}

/**
 * Creates the bucket, and so waits until the gateway is ready. The request has a version 2 signature, which takes one
 * line.
 *
 * @param {string} endpoint
 */
async function makeBucket(endpoint) {
  const deadline = Date.now() + readyWithinMs;
  for (;;) {
    const date = new Date().toUTCString();
    const text = `PUT\n\n\n\nx-amz-date:${date}\n/${access.bucket}`;
    const signature = createHmac("sha1", access.secret).update(text).digest("base64");
    const headers = { "x-amz-date": date, authorization: `AWS ${access.keyId}:${signature}` };
    const seen = await fetch(`${endpoint}/${access.bucket}`, { method: "PUT", headers }).then(
      async (response) => (response.ok ? undefined : `${response.status} ${await response.text()}`),
      (error) => String(error.cause ?? error),
    );
    if (seen === undefined) return;
    if (Date.now() > deadline) throw new Error(`Cannot make a bucket at ${endpoint}: ${seen}`);
    await delay(200);
  }
}

/**
 * @param {string} directory
 * @param {string} program
 * @param {readonly string[]} args
 */
async function start(directory, program, args) {
  const log = await open(join(directory, `${program}.out`), "a");
  try {
    const config = ["-c", join(directory, "ceph.conf")];
    const child = spawn(program, [...config, ...args, "-f"], { stdio: ["ignore", log.fd, log.fd] });
    await once(child, "spawn");
    return child;
  } finally {
    await log.close();
  }
}

/** @param {import("node:child_process").ChildProcess} child */
async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGTERM");
  const force = setTimeout(() => child.kill("SIGKILL"), stopWithinMs);
  await gone;
  clearTimeout(force);
}

/**
 * @param {string} directory
 * @param {string} program
 * @param {readonly string[]} args
 */
function ceph(directory, program, args) {
  return run(program, ["-c", join(directory, "ceph.conf"), ...args]);
}

/**
 * @param {string} program
 * @param {readonly string[]} args
 */
async function run(program, args) {
  const { stdout } = await promisify(execFile)(program, [...args], { timeout: readyWithinMs });
  return stdout;
}

/** @returns {Promise<number>} */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("A listening socket has no port");
  return address.port;
}

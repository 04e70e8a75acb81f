import { existsSync } from "node:fs";
import { run, tail } from "../setup/run.mjs";

/** The programs of Ceph's gateway and the packages that contain them. */
const programs = {
  "/usr/bin/ceph": "ceph-common",
  "/usr/bin/ceph-mon": "ceph-mon",
  "/usr/bin/ceph-osd": "ceph-osd",
  "/usr/bin/radosgw": "radosgw",
};

/** Installs the packages that are missing. They stay installed afterwards. */
export async function installRadosgw() {
  const missing = Object.entries(programs).filter(([path]) => !existsSync(path));
  if (missing.length === 0) return;
  const names = missing.map(([, name]) => name);
  console.log(`Installing ${names.join(", ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const install = () => run("apt-get", ["install", "--yes", "--no-install-recommends", ...names], { env });
  let result = await install();
  if (result.exitCode !== 0) {
    // The package lists may be old or missing.
    await run("apt-get", ["update", "-q"], { env });
    result = await install();
  }
  if (result.exitCode !== 0) throw new Error(`Cannot install ${names.join(", ")}:\n${tail(result.output)}`);
}

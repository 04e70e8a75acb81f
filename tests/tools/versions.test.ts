import { expect, test } from "vitest";
import {
  isNodeSupported,
  parseOfferedVersions,
  parseRunscDate,
  pickRunscVersion,
  supportedNode,
} from "../../tools/setup/versions.mjs";
import { listFiles, readText } from "../architecture/repository.ts";

test.for([
  ["20.19.0", true],
  ["20.20.2", true],
  ["22.12.0", true],
  ["22.21.1", true],
  ["24.0.0", true],
  ["26.3.1", true],
  ["20.18.3", false],
  ["18.20.4", false],
  ["21.7.3", false],
  ["22.11.0", false],
  ["23.11.1", false],
] as const)("Node %s is supported: %s", ([version, isSupported]) => {
  expect(isNodeSupported(version)).toBe(isSupported);
});

/** Packages that users' own programs load. They need none of our tools, and run on older releases of Node, too. */
const forUsers = ["packages/sdk/package.json", "packages/protocol/package.json"];

test("every package that runs in a checkout requires the releases of Node that set-up accepts", () => {
  const ours = listFiles().filter(
    (path) => /^(packages\/[^/]+\/)?package\.json$/.test(path) && !forUsers.includes(path),
  );
  const lock: { packages: Record<string, { engines?: { node?: string } }> } = JSON.parse(readText("package-lock.json"));
  for (const path of ours) {
    expect.soft(JSON.parse(readText(path)).engines?.node, path).toBe(supportedNode);
    const name = path.replace(/\/?package\.json$/, "");
    expect.soft(lock.packages[name]?.engines?.node, `${path} in package-lock.json`).toBe(supportedNode);
  }
});

test.for([
  ["runsc version 0.0~20240729.0", 20240729],
  ["runsc version release-20250106.0", 20250106],
  ["0.0~20221219.0-2+b3", 20221219],
  ["runsc version VERSION_MISSING", undefined],
  ["", undefined],
] as const)("the date in %j is %s", ([text, date]) => {
  expect(parseRunscDate(text)).toBe(date);
});

const policy = `runsc:
  Installed: 0.0~20221219.0-2+b3
  Candidate: 0.0~20221219.0-2+b3
  Version table:
     0.0~20240729.0-4~bpo12+2 100
        100 http://mirror.test/debian bookworm-backports/main amd64 Packages
 *** 0.0~20221219.0-2+b3 500
        500 http://mirror.test/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
`;

test("a version in a source is on offer", () => {
  expect(parseOfferedVersions(policy)).toEqual(["0.0~20240729.0-4~bpo12+2", "0.0~20221219.0-2+b3"]);
});

test("a version that is only installed is not on offer", () => {
  const installed = `runsc:
  Installed: 0.0~20240729.0-4
  Candidate: 0.0~20240729.0-4
  Version table:
 *** 0.0~20240729.0-4 100
        100 /var/lib/dpkg/status
`;
  expect(parseOfferedVersions(installed)).toEqual([]);
});

test("a new enough runsc is picked whatever its priority", () => {
  expect(pickRunscVersion(policy)).toBe("0.0~20240729.0-4~bpo12+2");
});

test("nothing is picked when every offer is too old, or there is none", () => {
  expect(pickRunscVersion(policy.replaceAll("20240729", "20231218"))).toBeUndefined();
  expect(pickRunscVersion("")).toBeUndefined();
});

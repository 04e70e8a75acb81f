import { expect, test } from "vitest";
import {
  isNodeSupported,
  parseOfferedVersions,
  parseRunscDate,
  pickRunscVersion,
} from "../../tools/setup/versions.mjs";

test.for([
  ["20.19.0", true],
  ["20.20.2", true],
  ["22.0.0", true],
  ["20.18.3", false],
  ["18.20.4", false],
] as const)("Node %s is supported: %s", ([version, isSupported]) => {
  expect(isNodeSupported(version)).toBe(isSupported);
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

test("apt offers what a source has", () => {
  expect(parseOfferedVersions(policy)).toEqual(["0.0~20240729.0-4~bpo12+2", "0.0~20221219.0-2+b3"]);
});

test("what is only installed is not on offer", () => {
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

import { expect, test } from "vitest";
import { misreadsLinkAttributes } from "../../src/drivers/gvisor/runsc-quirks.ts";

test.for([
  ["0.0~20240729.0", true],
  ["release-20241014.0", true],
  ["release-20241021.0", false],
  ["release-20260622.0", false],
  ["a build without a release", false],
] as const)("runsc %s misreads the attributes of a link: %s", ([version, does]) => {
  expect(misreadsLinkAttributes(version)).toBe(does);
});

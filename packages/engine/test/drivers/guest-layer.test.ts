import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { expect, test } from "vitest";
import { installGuest } from "../../src/drivers/guest-layer.ts";
import { guestInside } from "../../src/drivers/gvisor/oci-spec.ts";
import { caught } from "../support/caught.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

test("every user may run the guest at the path that sandboxes expect, and no user may write it", async () => {
  using directory = new TemporaryDirectory();
  writeFileSync(directory.join("guest"), "binary", { mode: 0o700 });
  const layer = await installGuest(directory.join("guest"), directory.join("guests"));
  expect(readFileSync(join(layer, guestInside), "utf8")).toBe("binary");
  expect(statSync(join(layer, guestInside)).mode & 0o777).toBe(0o755);
  expect(statSync(layer).mode & 0o777).toBe(0o755);
});

test("the same guest is installed once, however many calls ask for it", async () => {
  using directory = new TemporaryDirectory();
  writeFileSync(directory.join("guest"), "binary");
  const asked = Array.from({ length: 5 }, () => installGuest(directory.join("guest"), directory.join("guests")));
  const layers = new Set(await Promise.all(asked));
  layers.add(await installGuest(directory.join("guest"), directory.join("guests")));
  expect(layers.size).toBe(1);
  expect(readdirSync(directory.join("guests"))).toHaveLength(1);
});

test("a newer guest does not touch the one that sandboxes were started with", async () => {
  using directory = new TemporaryDirectory();
  writeFileSync(directory.join("guest"), "old");
  const old = await installGuest(directory.join("guest"), directory.join("guests"));
  writeFileSync(directory.join("guest"), "new");
  const next = await installGuest(directory.join("guest"), directory.join("guests"));
  expect(readFileSync(join(old, guestInside), "utf8")).toBe("old");
  expect(readFileSync(join(next, guestInside), "utf8")).toBe("new");
});

test("a missing guest is an error that says how to build it", async () => {
  using directory = new TemporaryDirectory();
  const error = await caught(installGuest(directory.join("none"), directory.join("guests")));
  expect(isSandboxError(error, "unsupported") && error.suggestion).toContain("setup");
});

import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { DataLayout } from "../../src/store/layout.ts";
import { newContainerId, newSandboxId } from "../../src/support/ids.ts";
import { caught } from "../support/caught.ts";

describe("a data directory", () => {
  test.for(["data", "./data", "", "/a,b", "/a:b", "/a b", "/a\tb", "/a\nb", '/a"b', "/a\\b"])(
    "%o cannot be one",
    async (path) => {
      const error = await caught((async () => new DataLayout(path))());
      expect(isSandboxError(error, "invalid_argument")).toBe(true);
    },
  );

  test.for(["/data", "/var/lib/atoll-1_x", "/a/b.c"])("%s can be one", (path) => {
    expect(new DataLayout(path).root).toBe(path);
  });

  test.for(["/data/", "/data//", "/x/../data", "/./data/."])("%s is /data, with the same mark on the host", (path) => {
    const layout = new DataLayout(path);
    expect(layout.root).toBe("/data");
    expect(layout.namespace).toBe(new DataLayout("/data").namespace);
  });

  test("two have different marks on the host", () => {
    expect(new DataLayout("/data").namespace).not.toBe(new DataLayout("/data2").namespace);
  });

  test("all paths are within it, and those of one container are apart from all others", () => {
    const sandbox = new DataLayout("/data").sandbox(newSandboxId());
    const [one, other] = [sandbox.run(newContainerId()), sandbox.run(newContainerId())];
    const paths = [
      one.fifos.in,
      one.fifos.out,
      one.rootfs,
      one.specFile,
      one.runtimeState,
      one.stderrFile,
      one.exitFile,
    ];
    expect(paths.filter((path) => !path.startsWith(`${one.dir}/`))).toEqual([]);
    expect(new Set(paths).size).toBe(paths.length);
    expect(one.dir).not.toBe(other.dir);
    expect(
      [one.dir, sandbox.recordFile, sandbox.layer(0).upper].filter((path) => !path.startsWith(`${sandbox.dir}/`)),
    ).toEqual([]);
    expect(sandbox.layer(0).upper).not.toBe(sandbox.layer(1).upper);
  });
});

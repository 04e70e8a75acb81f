import { join } from "node:path";
import { expect, test } from "vitest";
import { BubblewrapHost } from "../../src/isolation/bubblewrap-host.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { appHostContract, folder, Probe } from "./app-host-contract.ts";

const bubblewrap = new BubblewrapHost();
const lacks = await bubblewrap.missing();

appHostContract("process", () => new ProcessHost());
appHostContract("bubblewrap", () => bubblewrap, { skip: lacks.length > 0 });

test.skipIf(lacks.length > 0)(
  "bubblewrap keeps an app from files, the network and the kernel's interfaces",
  async () => {
    await using other = await Probe.start(new ProcessHost());
    await other.call("serve", 45_672);
    await using probe = await Probe.start(bubblewrap);
    expect(await probe.call("connect", 45_672)).toBe("ECONNREFUSED");
    expect(await probe.call("mount")).not.toBe(0);
    expect(await probe.call("unshare")).not.toBe(0);
    for (const path of ["/etc/passwd", "/root/.bashrc", "/work"]) {
      await expect((await Probe.start(bubblewrap)).call("read", path)).rejects.toThrow(/ENOENT/);
    }
    await expect(probe.call("write", join(folder, "src/probe.ts"))).rejects.toThrow("EROFS");
  },
);

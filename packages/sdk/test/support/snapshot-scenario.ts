import { Atoll, isSandboxError, Sandbox, type ErrorCode } from "@atoll/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ScenarioServer } from "./scenario.ts";

const code = (wanted: ErrorCode) => (error: unknown) => isSandboxError(error, wanted);

/** Runs the same tests of snapshots over the mock and over a real server. */
export function snapshotScenario(name: string, start: () => Promise<ScenarioServer>): void {
  describe(`snapshots over ${name}`, () => {
    let server: ScenarioServer;
    let client: Atoll;
    let sandbox: Sandbox;

    beforeAll(async () => {
      server = await start();
      client = new Atoll(server.connection);
      sandbox = await Sandbox.create({ client, ...server.create });
      await sandbox.files.write("work/kept", "as it was");
    });

    afterAll(async () => {
      await sandbox?.kill();
      client?.close();
      await server?.stop();
    });

    test("a sandbox goes on after its snapshot, and a new one starts with the files of that moment", async () => {
      const info = await sandbox.snapshot("moment");
      expect(info).toMatchObject({ name: "moment", sandboxId: sandbox.id });
      await sandbox.files.write("work/kept", "changed");
      await sandbox.files.write("work/later", "");
      await using copy = await Sandbox.create({ client, ...server.create, snapshot: "moment" });
      expect(await copy.files.read("work/kept")).toBe("as it was");
      expect(await copy.files.exists("work/later")).toBe(false);
      await copy.files.write("work/kept", "its own");
      expect(await sandbox.files.read("work/kept")).toBe("changed");
      expect((await copy.getInfo()).template).toBe((await sandbox.getInfo()).template);
    });

    test("a snapshot is found by its name and in the list, until it is removed", async () => {
      const taken = await sandbox.snapshot("found");
      expect(await client.snapshots.get("found")).toEqual(taken);
      expect(await client.snapshots.list()).toContainEqual(taken);
      await client.snapshots.remove("found");
      await expect(client.snapshots.get("found")).rejects.toSatisfy(code("not_found"));
      await expect(client.snapshots.remove("found")).rejects.toSatisfy(code("not_found"));
      await expect(Sandbox.create({ client, ...server.create, snapshot: "found" })).rejects.toSatisfy(
        code("not_found"),
      );
      expect((await client.snapshots.list()).map((snapshot) => snapshot.name)).not.toContain("found");
    });

    test("a name can be used once, and malformed names are refused", async () => {
      await sandbox.snapshot("taken");
      await expect(sandbox.snapshot("taken")).rejects.toSatisfy(code("already_exists"));
      await expect(sandbox.snapshot("Not a name")).rejects.toSatisfy(code("invalid_argument"));
    });

    test("a template other than the snapshot's own is refused", async () => {
      await sandbox.snapshot("of-host");
      const creating = Sandbox.create({ client, ...server.create, snapshot: "of-host", template: "another" });
      await expect(creating).rejects.toSatisfy(code("invalid_argument"));
    });

    test("an exported snapshot can be imported under another name, and other files are refused", async () => {
      await sandbox.files.write("work/exported", "to go");
      const { template } = await sandbox.snapshot("going");
      const file = await new Response(await client.snapshots.export("going")).arrayBuffer();
      const info = await client.snapshots.import("come", new Uint8Array(file));
      expect(info).toMatchObject({ name: "come", sandboxId: sandbox.id, template });
      await using copy = await Sandbox.create({ client, ...server.create, snapshot: "come" });
      expect(await copy.files.read("work/exported")).toBe("to go");
      const foreign = client.snapshots.import("foreign", new TextEncoder().encode("anything else\n"));
      await expect(foreign).rejects.toSatisfy(code("invalid_argument"));
      await expect(client.snapshots.get("foreign")).rejects.toSatisfy(code("not_found"));
      await expect(client.snapshots.import("going", new Uint8Array(file))).rejects.toSatisfy(code("already_exists"));
    });

    test("events report created and removed snapshots", async () => {
      await sandbox.snapshot("reported");
      await client.snapshots.remove("reported");
      const seen: string[] = [];
      for await (const event of client.events({ cursor: 0 })) {
        if ((event.type !== "snapshot.created" && event.type !== "snapshot.removed") || event.name !== "reported")
          continue;
        seen.push(event.type);
        if (event.type === "snapshot.removed") break;
      }
      expect(seen).toEqual(["snapshot.created", "snapshot.removed"]);
    });
  });
}

import { existsSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { EgressPolicy, type DriverName, type EgressPolicyInput } from "@atoll/protocol";
import {
  compilePolicy,
  createEgressHandler,
  proxyEnvironment,
  proxyPort,
  type CompiledPolicy,
  type EgressDecision,
} from "@atoll/server";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { servePackages } from "./package-server.ts";
import { openTestEngine, runIn, type TestEngine } from "./test-engine.ts";

/**
 * Tests egress from the view of programs in the sandbox: through the proxy variables, by name, to servers on this
 * machine that a rule names.
 */
export function egressContract(driver: DriverName): void {
  describe(`egress under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;
    let outside: Server;
    let port: number;
    let policy: CompiledPolicy;
    let decisions: EgressDecision[] = [];

    const allow = (next: EgressPolicyInput): void => {
      policy = compilePolicy(EgressPolicy.parse(next));
    };
    const inside = (command: string): Promise<{ output: string; exitCode: number | null }> =>
      runIn(sandbox, command, { env: proxyEnvironment() });

    beforeAll(async () => {
      host = await openTestEngine();
      outside = await servePackages(join(host.dataDir, "served"));
      port = (outside.address() as AddressInfo).port;
      allow({});
      const gate = createEgressHandler({
        policy: () => policy,
        onDecision: (decision) => decisions.push(decision),
        resolve: async (name) => (name === "files.test" || name === "metadata.test" ? ["127.0.0.1"] : []),
      });
      sandbox = await host.engine.create({ driver }, { onEgress: gate.onEgress });
      await sandbox.startProxy(proxyPort, { signal: AbortSignal.timeout(120_000) });
    });
    afterAll(async () => {
      await host.dispose();
      outside.close();
    });
    beforeEach(() => {
      decisions = [];
      allow({ allow: [`files.test:${port}`, `127.0.0.1:${port}`] });
    });

    test("curl fetches from an allowed host, and receives the reason of a refusal", async () => {
      expect(await inside(`curl -sS http://files.test:${port}/hello.txt`)).toMatchObject({ output: "hello\n" });
      expect((await inside("curl -sS http://evil.test/")).output).toContain("no rule allows it");
      expect(await inside("curl -sS https://evil.test/")).toMatchObject({ exitCode: 56 });
      expect(decisions.map(({ host: name, verdict }) => `${name} ${verdict}`)).toEqual([
        "files.test allowed",
        "evil.test refused",
        "evil.test refused",
      ]);
    });

    test("curl connects through SOCKS5 on the same port, and the host resolves names", async () => {
      const command = `curl -sS --proxy socks5h://127.0.0.1:${proxyPort} http://files.test:${port}/hello.txt`;
      expect(await inside(command)).toMatchObject({ output: "hello\n" });
      expect(decisions).toMatchObject([{ host: "files.test", protocol: "socks5", address: "127.0.0.1" }]);
    });

    test("Python finds the proxy by itself", async () => {
      const url = `http://files.test:${port}/hello.txt`;
      const script = `import urllib.request as u; print(u.urlopen('${url}').read().decode(), end='')`;
      expect(await inside(`python3 -c "${script}"`)).toMatchObject({ output: "hello\n" });
    });

    test("git clones by name", async () => {
      const { output, exitCode } = await inside(
        `git clone -q http://files.test:${port}/repository.git clone && cat clone/README`,
      );
      expect({ output, exitCode }).toEqual({ output: "read me\n", exitCode: 0 });
    });

    test("npm reads from a registry by name", async ({ skip }) => {
      skip(!existsSync("/usr/bin/npm"), "npm is not installed");
      const { output } = await inside(`npm view left --registry http://files.test:${port}/ --json version`);
      expect(output.trim()).toBe('"1.2.3"');
    });

    test("pip downloads from an index by name", async ({ skip }) => {
      skip(!existsSync("/usr/bin/pip3"), "pip is not installed");
      const index = `--index-url http://files.test:${port}/simple/ --trusted-host files.test`;
      const { output } = await inside(
        `python3 -m pip download -q --no-deps --disable-pip-version-check ${index} small && ls`,
      );
      expect(output).toContain("small-1.0-py3-none-any.whl");
    });

    test("apt fetches by name", async ({ skip }) => {
      skip(!existsSync("/usr/lib/apt/apt-helper"), "apt is not installed");
      const { exitCode } = await inside(
        `/usr/lib/apt/apt-helper download-file http://files.test:${port}/hello.txt got.txt && grep -q hello got.txt`,
      );
      expect(exitCode).toBe(0);
    });

    test("a server in the sandbox is reached without the proxy", async () => {
      const { output } = await inside(
        "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & " +
          "for i in $(seq 100); do curl -sf http://127.0.0.1:8123/ >/dev/null && break; sleep 0.1; done; " +
          "curl -s -o /dev/null -w '%{http_code}' http://localhost:8123/; kill %1",
      );
      expect(output).toBe("200");
      expect(decisions).toEqual([]);
    });

    test("no spelling of the machine's loopback address is allowed unless a rule names it", async () => {
      allow({ allow: ["*", "0.0.0.0/0"] });
      for (const name of [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "metadata.test",
        "169.254.169.254",
      ]) {
        const { output } = await inside(`curl -sS --noproxy '' http://${name}:${port}/hello.txt`);
        expect(output).toContain("no rule names it");
      }
    });

    test("a change of the policy applies at once", async () => {
      allow({});
      expect((await inside(`curl -sS http://files.test:${port}/hello.txt`)).output).toContain("no rule allows it");
    });
  });
}

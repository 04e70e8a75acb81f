import { assertAllowed, compilePolicy } from "@atoll/guard";
import { SandboxError, type SandboxId } from "@atoll/protocol";
import { describeConfig } from "../config/read-config.ts";
import { waitForPort } from "../ports/wait-for-port.ts";
import { EventStream, WithStatus, type Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";
import { keyOf } from "./sandbox-handlers.ts";
import { visibleEvents } from "./visible-events.ts";

export function serverHandlers(parts: Parts) {
  const { manager, keys, ports, metrics, config, uploads, admission } = parts;
  const { templates } = manager.engine;
  const assertPort = ({ id, port }: { id: SandboxId; port: number }, what: string): void =>
    assertAllowed(
      { operation: "port", profile: manager.access.profileOf(id), port },
      `${what} a port of sandbox ${id}`,
    );
  return {
    getPort: ({ params }) => {
      assertPort(params, "show");
      return ports.describe(params.id, params.port);
    },
    setPort: async ({ params, body }) => {
      assertPort(params, "change");
      await manager.changes.setPortPublic(params.id, params.port, body.isPublic);
      if (!body.isPublic) ports.close(params.id, params.port);
      return ports.describe(params.id, params.port);
    },
    waitForPort: async ({ params, body, waiting }) => {
      const { id, port } = params;
      await waitForPort((...how) => manager.dial(id, ...how), port, { timeoutMs: body.timeoutMs, signal: waiting });
      return ports.describe(id, port);
    },
    listTemplates: async () => {
      const stored = await templates.list();
      const host = { name: "host", kind: "host", isBuiltIn: true };
      return { templates: [host, ...stored.map((name) => ({ name, kind: "rootfs", isBuiltIn: false }))] };
    },
    importTemplate: async ({ params, body, signal }) => {
      const { maxBytes } = uploads;
      await uploads.use(body, signal, (archive) =>
        templates.importRootfs(params.name, { archive }, { signal, maxBytes }),
      );
      return { name: params.name, kind: "rootfs", isBuiltIn: false };
    },
    removeTemplate: async ({ params }) => {
      const user = manager.engine.list().find(({ template }) => template === params.name);
      if (user !== undefined) {
        throw new SandboxError("in_use", `Cannot remove template ${params.name}: sandbox ${user.id} is made of it`, {
          suggestion: "Kill the sandboxes that are made of it first.",
        });
      }
      await templates.remove(params.name);
    },
    listProfiles: async ({ principal }) => ({ profiles: await admission.resolve(keyOf(principal)) }),
    getProfile: ({ params, principal }) => admission.resolveOne(keyOf(principal), params.name),
    createKey: async ({ body, note }) => {
      if (body.policy.egress !== undefined) compilePolicy(body.policy.egress);
      admission.assertUsable(body.policy);
      const created = await keys.create(body);
      note({ keyId: created.key.id, verbs: created.key.verbs, policy: created.key.policy });
      return created;
    },
    listKeys: () => ({ keys: keys.list() }),
    revokeKey: ({ params }) => keys.revoke(params.keyId),
    followEvents: ({ query, lastEventId, principal, signal }) => {
      const cursor = /^\d{1,15}$/.test(lastEventId ?? "") ? Number(lastEventId) : query.cursor;
      return new EventStream(visibleEvents(manager, principal, { ...query, cursor, signal }));
    },
    notifyLease: ({ params }) => manager.persistent.notify(params.id),
    showConfig: () => describeConfig(config),
    healthz: () => ({ status: "ok" as const }),
    readyz: () => {
      const status = parts.stage();
      return new WithStatus(status === "ready" ? 200 : 503, { status });
    },
    metrics: () => metrics.text(),
  } satisfies Partial<Handlers>;
}

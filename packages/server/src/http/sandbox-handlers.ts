import { compilePolicy } from "@atoll/guard";
import { SandboxError, type KeyInfo, type SandboxCreated, type TemplateName } from "@atoll/protocol";
import { assertMayUseTemplate, canSee, isAdmin, type Principal } from "../auth/principal.ts";
import { missingSandbox } from "../manager/sandbox-registry.ts";
import type { SnapshotSource } from "../snapshots/snapshot-library.ts";
import { snapshotUserOf } from "../snapshots/snapshot-user.ts";
import { undefinedIfNotFound } from "../support/undefined-if-not-found.ts";
import { ByteStream, type Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";

export function sandboxHandlers({ manager, egress, ports, admission, snapshots }: Parts) {
  return {
    createSandbox: async ({ body, principal, idempotencyKey, note }) => {
      const key = keyOf(principal);
      if (body.egress !== undefined) compilePolicy(body.egress);
      const { profile, ...terms } = await admission.terms(key, body, "create sandbox");
      const bounded = { ...body, ...terms, profile: profile.name };
      const { egressCeiling } = admission.boundsOf(key);
      const { admit, done } = admission.open(key);
      const create = ({ template, files }: Partial<SnapshotSource> = {}): Promise<SandboxCreated> => {
        const request =
          template === undefined ? bounded : { ...bounded, template: sameTemplate(body.template, template) };
        assertMayUseTemplate({ kind: "key", key }, request.template, "create sandbox");
        return manager.create(request, { keyId: key.id, idempotencyKey, admit, egressCeiling, profile, files });
      };
      try {
        const { snapshot } = body;
        const created = await (snapshot === undefined
          ? create()
          : snapshots.use(snapshot, snapshotUserOf(key), create));
        note({ sandboxId: created.sandbox.id });
        return created;
      } finally {
        done();
      }
    },
    listSandboxes: ({ query, principal }) =>
      manager.list(query, (sandbox) => principal !== undefined && canSee(principal, sandbox)),
    getSandbox: ({ params }) => manager.get(params.id),
    updateSandbox: ({ params, body }) => manager.changes.update(params.id, body),
    killSandbox: async ({ params, principal, requester }) => {
      const { id } = params;
      const sandbox = undefinedIfNotFound(() => manager.get(id));
      const owner = sandbox?.owner ?? manager.events.ownerOf(id);
      if (principal === undefined || owner === undefined || !canSee(principal, { id, owner })) throw missingSandbox(id);
      // The sandbox belonged to the caller, or to a key whose sandboxes the caller can see.
      if (sandbox === undefined) return { killed: false };
      // A holder that never returns must not keep a sandbox from the operator.
      if (!isAdmin(principal)) manager.access.assertUsable(params.id, requester);
      const killed = await manager.kill(params.id);
      ports.close(params.id);
      return { killed };
    },
    pauseSandbox: ({ params, body }) => manager.pauseResume.pause(params.id, body),
    resumeSandbox: async ({ params, body, principal }) => {
      // Without memory, the driver starts a new container.
      const { driver } = manager.get(params.id);
      if (!body.memory) admission.boundsOf(keyOf(principal)).assertDriver(driver, `resume sandbox ${params.id}`);
      return manager.pauseResume.resume(params.id, body);
    },
    forkSandbox: async ({ params, body, principal, note }) => {
      const key = keyOf(principal);
      const bounds = admission.boundsOf(key);
      const {
        driver,
        egress: policy,
        limits: { lifetimeMs: _, ...limits },
      } = manager.get(params.id);
      const profile = manager.access.profileOf(params.id);
      bounds.terms({ profile, driver, egress: policy, limits }, `fork sandbox ${params.id}`);
      const { egressCeiling } = bounds;
      const places = Array.from({ length: body.count }, () => admission.open(key));
      const admit = (): void => places.forEach((place) => place.admit());
      try {
        const forked = await manager.forks.fork(params.id, body, { keyId: key.id, admit, egressCeiling });
        note({ copies: forked.sandboxes.map(({ sandbox }) => sandbox.id) });
        return forked;
      } finally {
        for (const { done } of places) done();
      }
    },
    rollBackSandbox: ({ params, body }) => manager.rollbacks.rollback(params.id, body),
    removeCheckpoint: async ({ params }) => ({
      removed: await manager.rollbacks.removeCheckpoint(params.id, params.checkpoint),
    }),
    listCheckpoints: async ({ params }) => ({ checkpoints: await manager.pauseResume.checkpoints(params.id) }),
    getUsage: ({ params }) => manager.usage(params.id),
    isolateSandbox: ({ params, body }) => manager.isolation.isolate(params.id, "operator", body.reason),
    releaseSandbox: ({ params, requester }) => manager.isolation.release(params.id, requester.who),
    getEvidence: async ({ params, signal }) =>
      new ByteStream(await manager.isolation.evidence.archive(params.id, signal)),
    getUsageHistory: ({ params, query }) => manager.monitor.history(params.id, query.sinceMs),
    holdSandbox: ({ params, body: { holder, ttlMs }, requester: { who } }) =>
      manager.changes.hold(params.id, { who, holder }, ttlMs),
    unholdSandbox: ({ params, query: { holder }, requester: { who } }) =>
      manager.changes.unhold(params.id, { who, holder }),
    getEgress: ({ params }) => manager.getEgress(params.id),
    setEgress: async ({ params, body, principal }) => {
      compilePolicy(body);
      const bounds = admission.boundsOf(keyOf(principal));
      bounds.assertEgress(
        body,
        manager.access.profileOf(params.id),
        `change the egress policy of sandbox ${params.id}`,
      );
      const policy = await manager.changes.setEgress(params.id, body, bounds.egressCeiling);
      egress.closeForbidden(params.id);
      return policy;
    },
  } satisfies Partial<Handlers>;
}

/** Returns the key. It is for routes that only keys may use. */
export function keyOf(principal: Principal | undefined): KeyInfo {
  if (principal?.kind === "key") return principal.key;
  throw new SandboxError("permission_denied", "Cannot do this without an API key");
}

/** Returns the template of the snapshot. A request that names no template has `host`. */
function sameTemplate(asked: TemplateName, ofSnapshot: TemplateName): TemplateName {
  if (asked === "host" || asked === ofSnapshot) return ofSnapshot;
  throw new SandboxError("invalid_argument", `Cannot create sandbox: the snapshot is of template ${ofSnapshot}`, {
    suggestion: "Leave out template: a snapshot has its own.",
    details: { field: "template", asked, ofSnapshot },
  });
}

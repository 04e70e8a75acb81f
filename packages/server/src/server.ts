import { setMaxListeners } from "node:events";
import { mkdir } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { ProfileBook, ServerSecret } from "@atoll/guard";
import { SandboxError, type AccessPolicy, type EgressPolicy } from "@atoll/protocol";
import type { FastifyInstance } from "fastify";
import { TemplateUploads } from "./archives/template-uploads.ts";
import { Admission } from "./auth/admission.ts";
import { Authenticator } from "./auth/authenticator.ts";
import { KeyStore } from "./auth/key-store.ts";
import { MachineCheck } from "./auth/machine-check.ts";
import { pooledShapes, serverPolicy } from "./auth/server-policy.ts";
import type { Config } from "./config/config.ts";
import type { ReadConfig } from "./config/read-config.ts";
import type { EgressGates } from "./egress/egress-gates.ts";
import { proxyEnvironment, proxyPort } from "./egress/proxy-environment.ts";
import { serverEgress } from "./egress/server-egress.ts";
import { buildApp } from "./http/app.ts";
import { createHandlers } from "./http/create-handlers.ts";
import { HostNames } from "./http/host-names.ts";
import { listen } from "./http/listen.ts";
import { answerWithoutUpgrade, ignoresUpgrade, wantsWebSocket } from "./http/plain-upgrades.ts";
import { visibleEvents } from "./http/visible-events.ts";
import { SandboxManager } from "./manager/sandbox-manager.ts";
import { openServerPersistence, type ServerPersistence } from "./persistence/server-persistence.ts";
import { openServerStores, type ServerStores } from "./persistence/server-stores.ts";
import { PortProxy } from "./ports/port-proxy.ts";
import { PortTokens } from "./ports/port-tokens.ts";
import { SignedFiles } from "./signing/signed-files.ts";
import { UrlSigner } from "./signing/url-signer.ts";
import { SnapshotLibrary } from "./snapshots/snapshot-library.ts";
import { undefinedIfNotFound } from "./support/undefined-if-not-found.ts";
import { EventSpans } from "./telemetry/event-spans.ts";
import type { Log } from "./telemetry/log.ts";
import { Metrics } from "./telemetry/metrics.ts";
import { openTracing } from "./telemetry/tracing.ts";
import { WatchHub } from "./watches/watch-hub.ts";
import { refuse, WebSockets } from "./websocket/websocket-server.ts";

export interface ServerOptions {
  config: ReadConfig;
  log: Log;
}

/** A running server. It connects the parts; they do the work. */
export class Server {
  /** The URL on which it listens. */
  readonly url: string;
  /** The admin key, at the first start on a data directory only. It cannot be shown again. */
  readonly firstKey: string | undefined;
  #app: FastifyInstance;
  #manager: SandboxManager;
  #keys: KeyStore;
  #ports: PortProxy;
  #snapshots: SnapshotLibrary;
  #watches: WatchHub;
  #egress: EgressGates;
  #spans: EventSpans;
  #stores: ServerStores;
  #persistence: ServerPersistence;
  #config: Config;
  #stopping: AbortController;
  #closing: Promise<void> | undefined;

  private constructor(parts: {
    url: string;
    app: FastifyInstance;
    manager: SandboxManager;
    keys: KeyStore;
    ports: PortProxy;
    snapshots: SnapshotLibrary;
    watches: WatchHub;
    egress: EgressGates;
    spans: EventSpans;
    stores: ServerStores;
    persistence: ServerPersistence;
    config: Config;
    stopping: AbortController;
  }) {
    this.url = parts.url;
    this.firstKey = parts.keys.firstSecret;
    this.#app = parts.app;
    this.#manager = parts.manager;
    this.#keys = parts.keys;
    this.#ports = parts.ports;
    this.#snapshots = parts.snapshots;
    this.#watches = parts.watches;
    this.#egress = parts.egress;
    this.#spans = parts.spans;
    this.#stores = parts.stores;
    this.#persistence = parts.persistence;
    this.#config = parts.config;
    this.#stopping = parts.stopping;
  }

  /** Continues everything that is in the data directory, then listens. */
  static async start({ config: read, log }: ServerOptions): Promise<Server> {
    const { config } = read;
    await mkdir(config.dataDir, { recursive: true, mode: 0o700 });
    const policy = await serverPolicy(config.policy, config.dataDir);
    const profiles = new ProfileBook(config.profiles);
    const tracing = await openTracing(config.otlpEndpoint, log);
    const spans = new EventSpans(tracing);
    const stores = await openServerStores(config);
    let url = "";
    const baseUrl = (): string => config.publicUrl ?? url;
    const persistence = openServerPersistence({ config, log, stores, baseUrl });
    const opened = await openManager({ config, policy, profiles, log, spans, persistence }).catch(
      async (error: unknown) => {
        await stores.close();
        throw error;
      },
    );
    const { manager, egress } = opened;
    try {
      const keys = await KeyStore.open(join(config.dataDir, "keys.json"));
      const secret = await ServerSecret.load(config.dataDir);
      const stopping = new AbortController();
      // Every stream and every waiting request listens to it.
      setMaxListeners(0, stopping.signal);
      const ports = new PortProxy({
        dial: (id, port, options) => manager.dial(id, port, options),
        tokens: new PortTokens(secret.keyFor("port tokens")),
        locate: (id) => manager.access.locate(id),
        isPublic: (id, port) => undefinedIfNotFound(() => manager.isPortPublic(id, port)) ?? false,
        baseUrl,
        domains: config.portDomains,
      });
      const signer = new UrlSigner(secret.keyFor("file URLs"));
      const signedFiles = new SignedFiles({
        signer,
        untilRevoked: (keyId) => keys.untilRevoked(keyId),
        bodyTimeoutMs: config.bodyTimeoutMs,
        acquire: async ({ sandboxId: id, by }) => {
          const leave = await manager.access.acquire(id, stopping.signal);
          try {
            manager.access.assertUsable(id, by ?? { who: "signed URL", holder: undefined });
            await manager.pauseResume.wake(id);
            return { files: manager.files(id), leave };
          } catch (error) {
            leave();
            throw error;
          }
        },
        onUse: ({ grant, bytes, error }) =>
          manager.audit.record({
            who: "signed URL",
            what: grant.method === "PUT" ? "writeFile" : "readFile",
            sandboxId: grant.sandboxId,
            result: error === undefined ? "ok" : "failed",
            ...(grant.method === "PUT" ? { bytesIn: bytes } : { bytesOut: bytes }),
          }),
      });
      const snapshots = await SnapshotLibrary.open({
        store: stores.snapshots,
        engine: manager.engine,
        scratchDir: join(config.dataDir, "snapshots"),
        maxBytes: config.maxSnapshotBytes,
        emit: (event) => manager.events.emit(event),
        log,
      });
      const uploads = await TemplateUploads.open(join(config.dataDir, "uploads"), config.maxTemplateBytes);
      manager.engine.events.listen((event) => {
        if (event.type === "state" && event.to === "released") ports.close(event.sandboxId);
      });
      manager.isolation.onCut((id) => ports.close(id));
      const watches = new WatchHub();
      const metrics = metricsOf(manager);
      const authenticator = new Authenticator({
        keys,
        verifyToken: (id, token) => manager.access.verifyToken(id, token),
        isFromServer: async (proof, { method, path }) =>
          (await persistence.sharedSecret?.isProven(proof, method, path)) ?? false,
        onRefused: ({ what, because }) => {
          metrics.refused();
          manager.events.emit({ type: "security.refused", what, because });
        },
      });
      const stage = () => (stopping.signal.aborted ? "stopping" : "ready");
      const admission = new Admission({
        profiles,
        machine: new MachineCheck(config),
        server: policy,
        auditLevel: config.auditLevel,
        counts: { ofKey: (keyId) => manager.countOf(keyId), all: () => manager.counts().sandboxes },
      });
      admission.assertUsable(policy);
      const parts = {
        manager,
        keys,
        admission,
        egress,
        ports,
        signer,
        snapshots,
        uploads,
        watches,
        metrics,
        config: read,
        baseUrl,
        stage,
      } as const;
      const hosts = new HostNames({ ...config, address: () => (app.server.address() as AddressInfo | null)?.address });
      const app = buildApp({
        config,
        handlers: createHandlers(parts),
        authenticator,
        sandboxes: {
          locate: (id) => manager.access.locate(id),
          isHere: (id) => manager.access.isHere(id),
          isSame: (id) => manager.persistent.isSame(id),
          acquire: (id, signal) => manager.access.acquire(id, signal),
          retain: (id) => manager.access.retain(id),
          assertSees: (principal, id) => manager.access.assertSees(principal, id),
          assertNotHeld: (id, by) => manager.access.assertUsable(id, by),
          wake: (id) => manager.pauseResume.wake(id),
        },
        audit: (entry, kind) => manager.audit.record(entry, kind),
        log,
        metrics,
        tracing,
        stopping: stopping.signal,
        before: [
          hosts.handle.bind(hosts),
          (request, response) => ports.handle(request, response),
          signedFiles.handle.bind(signedFiles),
        ],
      });
      const webSockets = new WebSockets({
        authenticator,
        assertSees: (principal, id) => manager.access.assertSees(principal, id),
        locate: (id) => manager.access.locate(id),
        sources: {
          command: (id, commandId, rollbacks) => manager.command(id, commandId, rollbacks),
          assertNotHeld: (id, by) => manager.access.assertUsable(id, by),
          files: (id) => manager.files(id),
          isHere: (id) => manager.access.isHere(id),
          acquire: (id, signal) => manager.access.acquire(id, signal),
          retain: (id) => manager.access.retain(id),
          wake: (id) => manager.pauseResume.wake(id),
          watches,
          events: (principal, options) => visibleEvents(manager, principal, options),
        },
        corsOrigins: config.corsOrigins,
        heartbeatMs: config.heartbeatMs,
        audit: (entry) => manager.audit.record(entry),
        log,
        metrics,
        stopping: stopping.signal,
      });
      app.server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
        // A connection whose offer was ignored may offer again, and has a listener then.
        if (socket.listenerCount("error") === 0) socket.on("error", () => socket.destroy());
        try {
          if (!hosts.isOurs(request)) return refuse(socket, "403 Forbidden");
          if (ignoresUpgrade(request)) return answerWithoutUpgrade(app.server, request, socket, head);
          if (ports.upgrade(request, socket, head)) return;
          if (!wantsWebSocket(request)) answerWithoutUpgrade(app.server, request, socket, head);
          else if (!webSockets.handleUpgrade(request, socket, head)) refuse(socket, "404 Not Found");
        } catch (error) {
          // An error that this listener throws would end the server. A client that sends an upgrade before the previous
          // reply causes one.
          log.warn({ err: error }, "upgrade refused");
          socket.destroy();
        }
      });
      url = await listen(app, config);
      snapshots.start();
      manager.persistent.start();
      persistence.start();
      return new Server({
        url,
        app,
        manager,
        keys,
        ports,
        snapshots,
        watches,
        egress,
        spans,
        stores,
        persistence,
        config,
        stopping,
      });
    } catch (error) {
      await manager.shutdown();
      await persistence.close();
      await stores.close();
      await spans.close();
      throw error;
    }
  }

  get sandboxCount(): number {
    return this.#manager.counts().sandboxes;
  }

  /**
   * Stops taking work, notifies clients, lets short requests finish, and stops. Sandboxes stay for the next server
   * unless they are to be killed.
   */
  close(options: { killAll?: boolean } = {}): Promise<void> {
    this.#closing ??= this.#close(options.killAll ?? this.#config.killOnExit);
    return this.#closing;
  }

  async #close(killAll: boolean): Promise<void> {
    this.#stopping.abort(
      new SandboxError("unavailable", "Cannot wait any longer: the server stops", {
        suggestion: "Try again in a moment; commands go on.",
      }),
    );
    this.#ports.close();
    const late = setTimeout(() => this.#app.server.closeAllConnections(), this.#config.stopTimeoutMs);
    await this.#app.close();
    clearTimeout(late);
    this.#watches.close();
    this.#egress.close();
    await this.#snapshots.close();
    await this.#manager.shutdown({ killAll, pauseAll: this.#config.pauseOnExit });
    await this.#keys.close();
    await this.#persistence.close();
    await this.#stores.close();
    await this.#spans.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

interface ManagerParts {
  config: Config;
  policy: AccessPolicy & { egress: EgressPolicy };
  profiles: ProfileBook;
  log: Log;
  spans: EventSpans;
  persistence: ServerPersistence;
}

async function openManager({
  config,
  policy,
  profiles,
  log,
  spans,
  persistence,
}: ManagerParts): Promise<{ manager: SandboxManager; egress: EgressGates }> {
  let resolveManager: (manager: SandboxManager) => void = () => undefined;
  const opened = new Promise<SandboxManager>((resolve) => {
    resolveManager = resolve;
  });
  const manager = await SandboxManager.open({
    persistence,
    dataDir: config.dataDir,
    guestPath: config.guestPath,
    runscPath: config.runscPath,
    engineOptions: {
      platform: config.platform,
      idleTimerSlackMs: config.idleTimerSlackMs,
      cpuWeight: config.cpuWeight,
      cpuFeatures: config.cpuFeatures,
      guestTimeoutMs: config.guestTimeoutMs,
      keepCheckpoints: config.keepCheckpoints,
      keepCheckpointsForMs: config.keepCheckpointsForMs,
    },
    // A sandbox of an earlier server may ask before all parts are ready.
    onEgress: (id) => async (ask) => {
      await opened;
      return egress.handlerFor(id)(ask);
    },
    proxyPort,
    environment: proxyEnvironment(),
    auditLevel: config.auditLevel,
    isolateAfterHits: config.isolateAfterHits,
    keptCommands: config.keptCommands,
    keptLogBytes: config.keptLogBytes,
    pool: pooledShapes(config.pool, policy, profiles),
    log,
    monitor: { intervalMs: config.monitorIntervalMs, keep: config.monitorSamples },
    alerts: config.alerts,
    journal: { onEmit: (event) => spans.record(event) },
  });
  const egress = serverEgress(manager, policy.egress);
  resolveManager(manager);
  return { manager, egress };
}

function metricsOf(manager: SandboxManager): Metrics {
  return new Metrics({
    sandboxes: () => {
      const counts = new Map<string, number>();
      for (const { state } of manager.engine.list()) counts.set(state, (counts.get(state) ?? 0) + 1);
      return counts;
    },
    runningCommands: () => manager.counts().runningCommands,
    persistenceEvents: () => manager.persistent.eventCounts,
    pooled: () => manager.counts().pooled,
    unresponsive: () => manager.engine.list().filter(({ id }) => manager.engine.get(id).isSilent).length,
    lastEvent: () => manager.events.cursor,
    monitor: {
      totals: () => manager.monitor.sampler.totals,
      leftovers: () => manager.monitor.leftovers.count,
      alerts: () => manager.alerts.counts,
    },
  });
}

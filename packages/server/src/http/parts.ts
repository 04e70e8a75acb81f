import type { TemplateUploads } from "../archives/template-uploads.ts";
import type { Admission } from "../auth/admission.ts";
import type { KeyStore } from "../auth/key-store.ts";
import type { ReadConfig } from "../config/read-config.ts";
import type { EgressGates } from "../egress/egress-gates.ts";
import type { SandboxManager } from "../manager/sandbox-manager.ts";
import type { PortProxy } from "../ports/port-proxy.ts";
import type { UrlSigner } from "../signing/url-signer.ts";
import type { SnapshotLibrary } from "../snapshots/snapshot-library.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { WatchHub } from "../watches/watch-hub.ts";

/** The parts of the server that handlers call. */
export interface Parts {
  manager: SandboxManager;
  keys: KeyStore;
  admission: Admission;
  egress: EgressGates;
  ports: PortProxy;
  signer: UrlSigner;
  snapshots: SnapshotLibrary;
  uploads: TemplateUploads;
  watches: WatchHub;
  metrics: Metrics;
  config: ReadConfig;
  /** Returns the URL under which clients reach this server. */
  baseUrl: () => string;
  stage: () => "ready" | "starting" | "stopping";
}

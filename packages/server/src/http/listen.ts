import type { AddressInfo } from "node:net";
import { SandboxError, type ErrorCode } from "@atoll/protocol";
import type { FastifyInstance } from "fastify";
import type { Config } from "../config/config.ts";

const refusals: Readonly<Record<string, { code: ErrorCode; because: string; suggestion: string }>> = {
  EADDRINUSE: {
    code: "in_use",
    because: "another program listens there",
    suggestion: "Stop it, or choose another port: `npm start -- --port 4700`, `atoll up --port 4700`.",
  },
  EACCES: {
    code: "permission_denied",
    because: "this user may not listen there",
    suggestion: "Choose a port from 1024 on (--port), or start the server as root.",
  },
  EADDRNOTAVAIL: {
    code: "invalid_argument",
    because: "this machine does not have that address",
    suggestion: "Choose an address of this machine (--host), or 0.0.0.0 for all of them.",
  },
  ENOTFOUND: {
    code: "invalid_argument",
    because: "no address of that name is known",
    suggestion: "Choose an address of this machine (--host), or 0.0.0.0 for all of them.",
  },
};

/** Resolves with the URL. Rejects with an error that names the cause and a fix. */
export async function listen(app: FastifyInstance, { host, port }: Pick<Config, "host" | "port">): Promise<string> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    const refusal = refusals[(error as NodeJS.ErrnoException).code ?? ""];
    if (refusal === undefined) throw error;
    const { code, because, suggestion } = refusal;
    throw new SandboxError(code, `Cannot listen on ${urlOf(host, port)}: ${because}`, {
      suggestion,
      details: { host, port },
      cause: error,
    });
  }
  return urlOf(host, (app.server.address() as AddressInfo).port);
}

function urlOf(host: string, port: number): string {
  const isEverywhere = host === "0.0.0.0" || host === "::";
  const name = isEverywhere ? "localhost" : host.includes(":") ? `[${host}]` : host;
  return `http://${name}:${port}`;
}

import { SandboxError, type SandboxId } from "@atoll/protocol";
import { randomName } from "./mock-command.ts";
import type { MockFiles } from "./mock-files.ts";

interface Grant {
  sandboxId: SandboxId;
  path: string;
  method: "GET" | "PUT";
  expiresAtMs: number;
}

const prefix = "/signed/";

/** URLs that work without a key until they expire; `fetch` of the mock's connection answers them. */
export class MockSignedFiles {
  readonly #grants = new Map<string, Grant>();

  sign(
    sandboxId: SandboxId,
    { path, method, expiresInMs }: { path: string; method: "GET" | "PUT"; expiresInMs: number },
  ): { url: string; expiresAtMs: number } {
    const expiresAtMs = Date.now() + expiresInMs;
    const secret = randomName();
    this.#grants.set(secret, { sandboxId, path, method, expiresAtMs });
    const name = path.split("/").findLast((part) => part !== "") ?? "file";
    return { url: `${prefix}${secret}/${encodeURIComponent(name)}`, expiresAtMs };
  }

  /** Resolves with `undefined` if the request is not for such a URL. */
  async answer(request: Request, filesOf: (id: SandboxId) => MockFiles): Promise<Response | undefined> {
    const { pathname } = new URL(request.url);
    if (!pathname.startsWith(prefix)) return undefined;
    const { sandboxId, path } = this.#verify(pathname.slice(prefix.length).split("/")[0] ?? "", request.method);
    const files = filesOf(sandboxId);
    if (request.method === "PUT") {
      files.write(path, new Uint8Array(await request.arrayBuffer()), { mode: "644", how: "replace" });
      return new Response(null, { status: 204 });
    }
    const content = files.read(path);
    const headers = { "content-type": "application/octet-stream", "content-disposition": "attachment" };
    return new Response(request.method === "HEAD" ? null : content.slice(), { headers });
  }

  #verify(secret: string, method: string): Grant {
    const grant = this.#grants.get(secret);
    const isAllowed = grant !== undefined && (method === grant.method || (method === "HEAD" && grant.method === "GET"));
    if (isAllowed && grant.expiresAtMs > Date.now()) return grant;
    throw new SandboxError("permission_denied", "Cannot use this URL: it is invalid or has expired");
  }
}

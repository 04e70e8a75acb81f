import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";

/** The most bytes of headers that are read of an answer. Nothing of its body is. */
const maxHeaderBytes = 8 * 1024;

/**
 * Sends one request and resolves to the status of the answer. Redirects are not followed: the alert goes to the
 * receiver that was configured, or to none.
 */
export function postAlert(
  url: string,
  body: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<number> {
  const request = new URL(url).protocol === "https:" ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const length = String(Buffer.byteLength(body));
    const sent = request(url, {
      method: "POST",
      headers: { "content-type": "application/json", "content-length": length, ...headers },
      // A connection of its own: one that a receiver keeps open must not be used for the next alert.
      agent: false,
      maxHeaderSize: maxHeaderBytes,
      signal,
    });
    sent.once("response", (response) => {
      resolve(response.statusCode ?? 0);
      // Whatever the body is, its sender decides its length and its pace.
      response.on("error", () => undefined);
      response.destroy();
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

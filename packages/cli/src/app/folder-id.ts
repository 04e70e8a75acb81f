import { basename, resolve } from "node:path";

/** The name of the folder, as far as the id of an app may have its characters. */
export function idOfFolder(folder: string): string {
  const name = basename(resolve(folder)).toLowerCase();
  return (
    name
      .replaceAll(/[^a-z0-9_-]/g, "-")
      .replace(/^[^a-z0-9]+/, "")
      .slice(0, 64) || "app"
  );
}

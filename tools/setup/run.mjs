import { spawn } from "node:child_process";

/**
 * @typedef {object} RunResult
 * @property {number | null} exitCode null if the program could not start or was killed
 * @property {string} stdout
 * @property {string} output both streams, in the order in which the output came
 */

/**
 * Runs a program to its end and collects its output. It never rejects: a program that is missing is a result, too.
 *
 * @param {string} file
 * @param {readonly string[]} args
 * @param {{ cwd?: string, env?: NodeJS.ProcessEnv, stdin?: "ignore" | "inherit" }} [options]
 * @returns {Promise<RunResult>}
 */
export function run(file, args, { cwd, env = process.env, stdin = "ignore" } = {}) {
  return new Promise((resolve) => {
    let stdout = "";
    let output = "";
    const child = spawn(file, args, { cwd, env, stdio: [stdin, "pipe", "pipe"] });
    child.stdout?.setEncoding("utf8").on("data", (text) => {
      stdout += text;
      output += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
    child.on("error", (error) => resolve({ exitCode: null, stdout, output: `${output}${error.message}\n` }));
    child.on("close", (exitCode) => resolve({ exitCode, stdout, output }));
  });
}

/**
 * @param {string} text
 * @param {number} [lines]
 */
export function tail(text, lines = 20) {
  return text.trimEnd().split("\n").slice(-lines).join("\n");
}

// @module-tag gvisor
import { fileContract } from "../support/file-contract.ts";

fileContract("gvisor");

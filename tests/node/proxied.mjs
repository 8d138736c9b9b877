// What every client program here knows: where the proxy is, and what its upstream saw.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

export const PROXY = process.env.PINOCCHIO_URL; // ends in /v1
export const UPSTREAM = process.env.UPSTREAM_URL;
const SCORED_SURFACES = (process.env.SCORED_SURFACES ?? "").split(",");

export const KEY = "sk-client";
export const QUESTION = "How is the weather at the Eiffel tower?";
export const SENTENCE = "It is sunny in Paris. p=0.92";
export const THOUGHT = "Where is the Eiffel tower?";
export const RESULT = "sunny";
export const ROME = { name: "Rome", inhabitants: 2755309 };
export const TIMEOUT_MS = 400; // of a client that gives up; upstream's `slow` takes far longer

export const isScored = (surface) => SCORED_SURFACES.includes(surface);

/** A model's name that has this behaviour and belongs to one test alone. */
export const named = (behaviour) => `${behaviour}--${randomUUID().slice(0, 13)}`;

/** The requests for a model that arrived upstream: path, headers, body, has_left. */
export async function seen(model) {
  return (await fetch(`${UPSTREAM}/seen/${model}`)).json();
}

export const tries = async (model) => (await seen(model)).length;

/** Upstream's connections for this model, one at least, are all closed unanswered within 2 s. */
export async function wasLeft(model) {
  for (const end = Date.now() + 2000; Date.now() < end; await pause(50)) {
    const requests = await seen(model);
    if (requests.length && requests.every((request) => request.has_left)) return;
  }
  assert.fail(`upstream was not left: ${model}`);
}

export async function arrived(model) {
  for (const end = Date.now() + 10000; Date.now() < end; await pause(20)) {
    if (await tries(model)) return;
  }
  assert.fail(`the request never arrived upstream: ${model}`);
}

/** The error that a promise ends with. */
export async function failureOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("nothing was thrown");
}

/** The parts of a stream, and what it threw in place of more. */
export async function readUntilFailure(stream) {
  const parts = [];
  try {
    for await (const part of await stream) parts.push(part);
  } catch (error) {
    return { parts, error };
  }
  return { parts, error: null };
}

/** The header has the confidence; nothing is claimed on a surface without scores. */
export function checkLabel(surface, headers) {
  const get = (name) => (headers.get ? headers.get(name) : headers[name]) ?? null;
  assert.equal(get("x-pinocchio-confidence"), isScored(surface) ? "0.9200" : null);
  const status = isScored(surface) ? "scored" : "not_supported";
  assert.equal(get("x-pinocchio-confidence-status"), status);
}

/** One of the objects has the member, with the confidence; none on a surface without scores. */
export function checkMembers(surface, objects) {
  const members = objects.map((object) => object?.pinocchio).filter(Boolean);
  const told = members.map((member) => [member.status, member.confidence]);
  assert.deepEqual(told, isScored(surface) ? [["scored", 0.92]] : []);
}

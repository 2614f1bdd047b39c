------------------------------- MODULE PdPull -------------------------------
(***************************************************************************)
(* Transfers that decode pulls, in PdLedger.  The client takes its request *)
(* to prefill, which computes it, keeps the source pages under a lease and *)
(* answers with a reference to them; with that the client goes to decode,  *)
(* which claims the pages, waits for room, reads them, and says that they  *)
(* may go.                                                                 *)
(*                                                                         *)
(* A reader that waits renews the lease.  Renewals change nothing but when *)
(* a lease can end, so that they are no steps: it ends where nobody renews *)
(* it, or where what renews it can be lost.                                *)
(***************************************************************************)
EXTENDS PdDecode, PdPrefill

Request(r) ==                   \* to prefill
  LET a == Len(attempts[r]) + 1
  IN /\ Pulls /\ CanSubmit(r)
     /\ attempts' = [attempts EXCEPT ![r] = Append(@, [NewAttempt EXCEPT !.stage = "away"])]
     /\ jobs' = [jobs EXCEPT ![r] = Append(@, [NewJob EXCEPT !.stage = "waiting"])]
     /\ waiting' = Append(waiting, <<r, a>>)
     /\ Did("Request", r, a, 0, 0)
     /\ UNCHANGED <<decode, prefill, cache, queue, wire, net, strays>>

Refer(r, a) ==                  \* all is computed: the client gets its reference, and the lease begins
  LET job == jobs[r][a]
      At(p) == CHOOSE i \in 0..(Granted[r] - 1) : Source(job, i).page = p
      pages == {t.page : t \in Range(job.sources)}
  IN /\ Pulls /\ job.stage = "accepted" /\ ~job.released
     /\ prefill' = [prefill EXCEPT !.content = [p \in DOMAIN @ |->
                      IF p \in pages THEN [l \in LayerSet |-> Own(r, a, At(p))] ELSE @[p]]]
     /\ jobs' = [jobs EXCEPT ![r][a].stage = "referenced"]
     /\ attempts' = [attempts EXCEPT ![r][a].ref = job.sources]
     /\ Did("Refer", r, a, 0, 0)
     /\ UNCHANGED <<decode, cache, queue, waiting, wire, net, strays>>

Forward(r, a) ==                \* the client takes its request and its reference to decode, which claims the pages
  LET attempt == attempts[r][a]
  IN /\ attempt.stage = "away" /\ attempt.ref # <<>> /\ attempt.ended = Nobody
     /\ attempts' = [attempts EXCEPT ![r][a].stage = "claiming"]
     /\ net' = net \cup {Word2("claim", r, a, TRUE, attempt.ref)}
     /\ Did("Forward", r, a, 0, 0)
     /\ UNCHANGED <<decode, prefill, jobs, cache, queue, waiting, wire, strays>>

Present(r, of) ==               \* it comes to decode with the reference that was made for another request
  LET a == Len(attempts[r]) + 1
      made == {b \in DOMAIN attempts[of] : attempts[of][b].ref # <<>>}
      ref == attempts[of][CHOOSE b \in made : \A c \in made : c <= b].ref
  IN /\ "old-reference" \in May /\ Pulls /\ CanSubmit(r)
     /\ of # r /\ made # {} /\ Len(ref) >= Granted[r]
     /\ attempts' = [attempts EXCEPT ![r] = Append(@, [NewAttempt EXCEPT !.stage = "claiming", !.ref = ref])]
     /\ jobs' = [jobs EXCEPT ![r] = Append(@, NewJob)]
     /\ net' = net \cup {Word2("claim", r, a, TRUE, ref)}
     /\ DidTake("Present", r, a, {of}, 0)
     /\ UNCHANGED <<decode, prefill, cache, queue, waiting, wire, strays>>

Leave(r, a, name, how) ==       \* the client gives up before it has its reference
  LET job == jobs[r][a]
  IN /\ attempts[r][a].stage = "away" /\ attempts[r][a].ended = Nobody /\ attempts[r][a].ref = <<>> /\ ~job.released
     /\ LetGo(job, strays)
     /\ attempts' = [attempts EXCEPT ![r][a].ended = how]
     /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
     /\ waiting' = Less(waiting, <<r, a>>)
     /\ Did(name, r, a, 0, 0)
     /\ UNCHANGED <<decode, cache, queue, wire, net>>
TimeOutAway(r, a) == "time-out" \in May /\ Leave(r, a, "TimeOut", "timed-out")
AbortAway(r, a) == "abort" \in May /\ Leave(r, a, "Abort", "aborted")

-----------------------------------------------------------------------------
(* Prefill's side.                                                         *)

OwnerOf(m) == <<m.pages[1].request, m.pages[1].attempt>>

(* Whoever claims may read from now on.  With the guard a reference is     *)
(* honoured for the attempt that it was made for, while its pages live.    *)
ReceiveClaim(m, left) ==
  LET owner == OwnerOf(m)
      job == jobs[owner[1]][owner[2]]
      pinned == SelectSeq(m.pages, LAMBDA t : ~job.released /\ t \in Range(job.sources))
      stale == Guarded("reference-names-generation")
               /\ (Len(pinned) < Len(m.pages) \/ owner # <<m.request, m.attempt>>)
      answer == Word2("claimed", m.request, m.attempt, ~stale, <<>>)
  IN /\ net' = left \cup {answer}
     /\ IF stale \/ job.released THEN UNCHANGED jobs
        ELSE jobs' = [jobs EXCEPT ![owner[1]][owner[2]].readers = @ \cup {<<m.request, m.attempt>>}]
     /\ prefill' = IF stale THEN prefill ELSE Grant(prefill, pinned, Nic)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, strays>>

(* Everything was read, or nobody will read any more.  Reads that failed   *)
(* may take effect all the same.                                           *)
ReceiveReadersEnd(m, left) ==
  LET owner == OwnerOf(m)
      job == jobs[owner[1]][owner[2]]
      knows == <<m.request, m.attempt>> \in {owner} \cup job.readers
      told == IF m.ok THEN CloseAll(prefill, job.sources, Nic) ELSE prefill
      books == ReleaseAll([pool |-> told, strays |-> strays], job.sources)
  IN /\ IF ~knows THEN UNCHANGED <<prefill, jobs, waiting, strays>>
        ELSE /\ prefill' = IF job.released THEN told ELSE books.pool
             /\ strays' = IF job.released THEN strays ELSE books.strays
             /\ jobs' = [jobs EXCEPT ![owner[1]][owner[2]].released = TRUE]
             /\ waiting' = Less(waiting, owner)
     /\ net' = left
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

Waiting(reader) ==              \* an attempt still waits to read, or its word that it does not is on the way
  LET attempt == attempts[reader[1]][reader[2]]
  IN \/ attempt.ended = Nobody /\ ~attempt.committed
     \/ \E m \in net : m.type \in {"complete", "release-source"} /\ <<m.request, m.attempt>> = reader

Lapse(r, a) ==                  \* the lease ends
  LET job == jobs[r][a]
      Answered(reader) ==       \* it is about to learn that it may read: a lease is longer than that
        \E m \in net : m.type = "claimed" /\ <<m.request, m.attempt>> = reader
      renewed == "lose" \notin May /\ \E reader \in job.readers :
                   Waiting(reader) /\ (Guarded("renew-lease") \/ Answered(reader))
  IN /\ "lease" \in May /\ job.stage = "referenced" /\ ~job.released /\ ~renewed
     /\ LetGo(job, strays)
     /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
     /\ Did("Lapse", r, a, 0, 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, net>>

-----------------------------------------------------------------------------
(* Decode's side.                                                          *)

ReceiveClaimed(m, left) ==
  LET r == m.request
      a == m.attempt
      attempt == attempts[r][a]
  IN /\ IF attempt.ended # Nobody
        THEN net' = left /\ UNCHANGED <<decode, attempts, cache, queue, strays>>
        ELSE IF m.ok
        THEN /\ attempts' = [attempts EXCEPT ![r][a].stage = "here"]
             /\ queue' = Append(queue, <<r, a>>)
             /\ net' = left /\ UNCHANGED <<decode, cache, strays>>
        ELSE Fail(decode, strays, [attempt EXCEPT !.stage = "stale"], r, a, left)
     /\ UNCHANGED <<prefill, jobs, waiting, wire>>

(* The transport is done with some of an attempt's reads.                  *)
CompleteRead(r, a, done, ok) ==
  LET old == attempts[r][a]
      attempt == [old EXCEPT !.reading = @ \ done, !.got = IF ok THEN @ \cup done ELSE @, !.broken = @ \/ ~ok]
      whole == SelectSeq([i \in 1..Granted[r] |-> i - 1],
                         LAMBDA i : (\E w \in done : w[1] = i) /\ \A l \in LayerSet : <<i, l>> \in attempt.got)
      pool == CloseAll(decode, [n \in 1..Len(whole) |-> old.tickets[whole[n] + 1]], Nic)
      chunk == ChunkOf((CHOOSE w \in done : \A v \in done : w[1] <= v[1])[1])
  IN /\ Pulls /\ done # {} /\ done \subseteq old.reading
     /\ ok \/ "fail" \in May
     /\ ok /\ "answer-early" \notin May =>
          ~\E w \in wire : w.request = r /\ w.attempt = a /\ <<w.index, w.layer>> \in done
     /\ IF old.ended # Nobody
        THEN /\ decode' = pool /\ attempts' = [attempts EXCEPT ![r][a] = attempt]
             /\ net' = net \cup Leaves(attempt, r, a)
             /\ UNCHANGED <<cache, queue, strays>>
        ELSE IF attempt.broken
        THEN Fail(pool, strays, attempt, r, a, net)
        ELSE IF attempt.reading = {}
        THEN LET made == Commit([pool |-> pool, cache |-> cache], attempt, r, a)
             IN /\ decode' = made.pool /\ cache' = made.cache
                /\ attempts' = [attempts EXCEPT ![r][a] = made.attempt]
                /\ net' = net \cup made.sent /\ UNCHANGED <<queue, strays>>
        ELSE /\ decode' = pool /\ attempts' = [attempts EXCEPT ![r][a] = attempt]
             /\ UNCHANGED <<cache, queue, net, strays>>
     /\ Did(IF ok THEN "Complete" ELSE "Fail", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<prefill, jobs, waiting, wire>>
=============================================================================

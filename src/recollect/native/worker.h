/* A second thread, which is started once per process and waits for work. */

#ifndef WORKER_H
#define WORKER_H

#include <pthread.h>
#include <unistd.h>

typedef void (*Work)(void *);

static struct {
  pthread_mutex_t in_use; /* by one caller at a time */
  pthread_mutex_t lock;   /* of all that follows */
  pthread_cond_t changed;
  Work work; /* NULL: done */
  void *argument;
  pid_t process; /* in which the thread was started: a fork has none */
} worker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0};

static void *wait_for_work(void *unused) {
  pthread_mutex_lock(&worker.lock);
  for (;;) {
    while (!worker.work) pthread_cond_wait(&worker.changed, &worker.lock);
    pthread_mutex_unlock(&worker.lock);
    worker.work(worker.argument);
    pthread_mutex_lock(&worker.lock);
    worker.work = NULL;
    pthread_cond_broadcast(&worker.changed);
  }
  return unused;
}

/* Whether there is a thread in this process; started if needed. */
static int has_worker(void) {
  pthread_t thread;
  if (worker.process == getpid()) return 1;
  /* After a fork, they still count the thread of the parent as waiting. */
  worker.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  worker.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  worker.work = NULL;
  if (pthread_create(&thread, NULL, wait_for_work, NULL)) return 0;
  pthread_detach(thread);
  worker.process = getpid();
  return 1;
}

/* Both calls: at the same time if the thread is free, otherwise one after the other. */
static void run_both(Work work, void *first, void *second) {
  int shared = !pthread_mutex_trylock(&worker.in_use);
  int parallel = shared && has_worker();
  if (parallel) {
    pthread_mutex_lock(&worker.lock);
    worker.work = work, worker.argument = second;
    pthread_cond_broadcast(&worker.changed);
    pthread_mutex_unlock(&worker.lock);
  }
  work(first);
  if (parallel) {
    pthread_mutex_lock(&worker.lock);
    while (worker.work) pthread_cond_wait(&worker.changed, &worker.lock);
    pthread_mutex_unlock(&worker.lock);
  } else {
    work(second);
  }
  if (shared) pthread_mutex_unlock(&worker.in_use);
}

#endif
